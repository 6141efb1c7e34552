// Everything that quire compare says about runs, as numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainers/compare/document_metric.h"
#include "trainers/compare/paired_difference.h"
#include "trainers/compare/run_groups.h"

namespace quire {

// Figures of a document, a bin or a whole evaluation are bits per byte where every run has them, else nats per token.
enum class CompareMetric { bits_per_byte, nats_per_token };
const char* name_in_json(CompareMetric metric);
const char* shown_name(CompareMetric metric);
double figure_of(CompareMetric metric, double nll, int64_t tokens, int64_t bytes);
// Returns the number that a sum of nats is divided by.
int64_t size_of(CompareMetric metric, int64_t tokens, int64_t bytes);

// Final figures over the runs of a group.
struct GroupFigures {
  std::optional<Spread> bits_per_byte;  // nothing where a run has none
  std::optional<Spread> token_perplexity;
  std::optional<Spread> loss;                     // nats per token
  std::vector<std::optional<Spread>> of_metrics;  // of Comparison::metrics
};

// A group less another, as a rule the baseline.
struct GroupDifference {
  size_t group = 0;
  size_t baseline = 0;
  size_t metric = 0;           // number in Comparison::metrics
  int64_t documents = 0;       // that all runs of both have read
  std::vector<int64_t> seeds;  // of the group's runs that count
  bool paired_seeds = false;   // only runs with the same seeds in both count
  std::optional<PairedDifference> difference;
  std::string without_difference;  // the reason
  std::string without_interval;    // the reason
};

// Figures of targets at positions from begin to end in their documents.
struct PositionRow {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  std::vector<std::optional<Spread>> groups;
};

// Figures of the evaluations while training at a budget: what the group that has used least has used, mean over its
// runs. They lie on lines between the evaluations beside the budget.
struct EqualBudget {
  std::optional<double> budget;  // seconds of training steps, or targets trained on
  struct Group {
    std::optional<Spread> figure;
    std::vector<double> steps;  // of the runs at the budget
  };
  std::vector<Group> groups;
  std::string without;  // the reason
};

struct Comparison {
  std::string split;
  std::vector<ComparedRun> runs;
  std::vector<RunGroup> groups;
  size_t baseline = 0;                                  // number of a group
  CompareMetric metric = CompareMetric::bits_per_byte;  // of whole evaluations
  std::vector<DocumentMetric> metrics;                  // of differences
  std::vector<GroupFigures> figures;
  std::vector<GroupDifference> differences;
  CompareMetric position_metric = CompareMetric::bits_per_byte;
  std::vector<PositionRow> positions;
  CompareMetric budget_metric = CompareMetric::bits_per_byte;
  EqualBudget equal_time;
  EqualBudget equal_tokens;
  std::vector<DifferingKey> configuration;
  std::vector<std::string> warnings;
};

struct ComparisonChoices {
  std::vector<DocumentMetric> metrics = {};             // none: bits per byte where every run has them, else nats
  std::vector<std::pair<size_t, size_t>> besides = {};  // the group of run .first is compared with that of .second, too
};

// `baseline` is the number of a run. Throws Error(config) that names a run without one of the metrics.
Comparison compare_runs(std::vector<ComparedRun> runs, const std::string& split, size_t baseline,
                        const ComparisonChoices& choices = {});

// The parts of it, for a comparison that has what comes before them.
GroupDifference group_difference(const Comparison& comparison, size_t group, size_t baseline_group, size_t metric);
// `used` is the run's member and `at` the point's member that have the same unit.
EqualBudget equal_budget(const Comparison& comparison, std::optional<double> ComparedRun::*used,
                         double CurvePoint::*at);
std::vector<std::string> warnings_of(const Comparison& comparison);

// Returns the fields of configs/COMPARE.md.
nlohmann::ordered_json to_json(const Comparison& comparison);

}  // namespace quire
