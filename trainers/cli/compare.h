// Comparisons of runs as quire compare prints them, for verbs that end in one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainers/cli/verb.h"
#include "trainers/compare/comparison.h"

namespace quire {

// Says how a comparison is printed, and where it is kept.
struct CompareOutput {
  std::string html;
  std::string keep;
  bool json = false;
  bool markdown = false;
};
void add_output_options(Verb& app, CompareOutput& output);
// Checks the files to write before anything is computed. Throws Error(config) for one that is something else.
void require_output(const CompareOutput& output);

// A comparison without its runs.
struct ComparePlan {
  std::string split;
  size_t baseline = 0;  // number of a run
  ComparisonChoices choices = {};
};
// Compares the runs and prints the result; for rank 0.
void print_comparison(std::vector<ComparedRun> runs, const ComparePlan& plan, const CompareOutput& output);

// Reads a run directory with its stored evaluation of all documents of the split, and evaluates it where there is none.
ComparedRun wholly_evaluated_run(const std::string& path, const std::string& split);

}  // namespace quire
