// The report of quire eval, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>

#include "trainers/cli/opened_evaluation.h"

namespace quire {

// The parts of a report beside the figures of whole splits.
struct ReportDetails {
  bool documents = false;
  bool by_position = false;
};

// Returns the fields of configs/EVALUATION.md.
nlohmann::ordered_json evaluation_json(const OpenedEvaluation& opened, const PlannedEvaluation& planned,
                                       const EvaluationResult& result, const ReportDetails& details);

// Prints checkpoint, split, figures and details.
void print_evaluation(const OpenedEvaluation& opened, const PlannedEvaluation& planned, const EvaluationResult& result,
                      const ReportDetails& details);

// Prints several evaluations as a table, each line as soon as it is known.
class EvaluationTable {
 public:
  explicit EvaluationTable(const OpenedEvaluation& opened);
  void print_line(const PlannedEvaluation& planned, const EvaluationResult& result, const ReportDetails& details) const;

 private:
  std::vector<size_t> widths_;
};

}  // namespace quire
