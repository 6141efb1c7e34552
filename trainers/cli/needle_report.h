// Writes the results of quire needle as tables and as a picture.
#pragma once

#include <string>
#include <vector>

#include "trainers/compare/report.h"
#include "trainers/evaluation/heat_map.h"
#include "trainers/evaluation/needle.h"

namespace quire {

// The answers to one task. Several tasks have the same lengths and samples, and are tasks of questions.
struct NeedleAnswers {
  NeedleOptions options;
  NeedleResult result;
};

bool asks_questions(const std::vector<NeedleAnswers>& answers);
int64_t tokens_read(const std::vector<NeedleAnswers>& answers);
double seconds_spent(const std::vector<NeedleAnswers>& answers);

// Returns one table: a row for each task or depth and each length, with intervals.
Report report_of(const std::vector<NeedleAnswers>& answers, const std::string& title);
// Returns a table of whole answers and one of single tokens: lengths are columns, depths are rows.
std::string tables_of(const NeedleAnswers& answers);
// Lengths are columns; depths, or tasks, are rows.
HeatMap heat_map(const std::vector<NeedleAnswers>& answers, const std::string& title);

}  // namespace quire
