#include "trainers/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

namespace quire {

namespace {

template <typename Has>
CompareMetric metric_where(const std::vector<ComparedRun>& runs, const Has& has_bits) {
  return std::all_of(runs.begin(), runs.end(), has_bits) ? CompareMetric::bits_per_byte : CompareMetric::nats_per_token;
}

GroupFigures figures_of(const RunGroup& group, const std::vector<ComparedRun>& runs) {
  std::vector<double> bits, perplexities, losses;
  for (const size_t number : group.runs) {
    const StoredEvaluation& evaluation = runs[number].evaluation;
    if (const auto value = evaluation.bits_per_byte()) bits.push_back(*value);
    losses.push_back(evaluation.loss());
    perplexities.push_back(std::exp(losses.back()));
  }
  if (bits.size() < losses.size()) bits.clear();
  return {spread_of(bits), spread_of(perplexities), spread_of(losses)};
}

// Returns the bounds of rows: from 256 on powers of two, and everything before as one row, in longer documents.
std::vector<int64_t> row_bounds(const std::vector<ComparedRun>& runs) {
  constexpr int64_t kFirst = 256;
  std::set<int64_t> ends;
  for (const ComparedRun& run : runs) {
    for (const StoredDocument& document : run.evaluation.documents) {
      for (const StoredBin& bin : document.by_position) ends.insert(bin.end);
    }
  }
  std::vector<int64_t> bounds{0};
  const bool are_short = ends.empty() || *ends.rbegin() <= kFirst;
  for (const int64_t end : ends) {
    if (are_short || end >= kFirst) bounds.push_back(end);
  }
  return bounds;
}

void add_positions(Comparison& comparison) {
  const std::vector<int64_t> bounds = row_bounds(comparison.runs);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    PositionRow row{bounds[i], bounds[i + 1], {}};
    for (const RunGroup& group : comparison.groups) {
      std::vector<double> values;
      for (const size_t number : group.runs) {
        StoredBin sum;
        for (const StoredDocument& document : comparison.runs[number].evaluation.documents) {
          for (const StoredBin& bin : document.by_position) {
            if (bin.begin < row.begin || bin.end > row.end) continue;
            sum.tokens += bin.tokens;
            sum.bytes += bin.bytes;
            sum.nll += bin.nll;
          }
        }
        if (size_of(comparison.position_metric, sum.tokens, sum.bytes) == 0) continue;
        values.push_back(figure_of(comparison.position_metric, sum.nll, sum.tokens, sum.bytes));
      }
      row.groups.push_back(spread_of(values));
    }
    comparison.positions.push_back(std::move(row));
  }
}

}  // namespace

double figure_of(CompareMetric metric, double nll, int64_t tokens, int64_t bytes) {
  if (metric == CompareMetric::nats_per_token) return nll / static_cast<double>(tokens);
  return nll / (std::numbers::ln2 * static_cast<double>(bytes));
}

int64_t size_of(CompareMetric metric, int64_t tokens, int64_t bytes) {
  return metric == CompareMetric::nats_per_token ? tokens : bytes;
}

const char* name_in_json(CompareMetric metric) {
  return metric == CompareMetric::bits_per_byte ? "bits_per_byte" : "nats_per_token";
}

const char* shown_name(CompareMetric metric) {
  return metric == CompareMetric::bits_per_byte ? "bits per byte" : "nats per token";
}

Comparison compare_runs(std::vector<ComparedRun> runs, const std::string& split, size_t baseline) {
  Comparison comparison;
  comparison.split = split;
  comparison.runs = std::move(runs);
  comparison.groups = group_runs(comparison.runs);
  for (size_t group = 0; group < comparison.groups.size(); ++group) {
    const std::vector<size_t>& numbers = comparison.groups[group].runs;
    if (std::find(numbers.begin(), numbers.end(), baseline) != numbers.end()) comparison.baseline = group;
  }
  const std::vector<ComparedRun>& all = comparison.runs;
  comparison.metric = metric_where(all, [](const ComparedRun& run) { return run.evaluation.has_text; });
  comparison.position_metric =
      metric_where(all, [](const ComparedRun& run) { return run.evaluation.has_bytes_by_position; });
  comparison.budget_metric = metric_where(all, [](const ComparedRun& run) {
    return std::all_of(run.curve.begin(), run.curve.end(),
                       [](const CurvePoint& point) { return point.bits_per_byte.has_value(); });
  });
  for (const RunGroup& group : comparison.groups) comparison.figures.push_back(figures_of(group, all));
  for (size_t group = 0; group < comparison.groups.size(); ++group) {
    if (group != comparison.baseline) comparison.differences.push_back(group_difference(comparison, group));
  }
  add_positions(comparison);
  comparison.equal_time = equal_budget(comparison, &ComparedRun::final_seconds, &CurvePoint::seconds);
  comparison.equal_tokens = equal_budget(comparison, &ComparedRun::final_tokens, &CurvePoint::tokens);
  comparison.configuration = differing_keys(all, comparison.groups);
  comparison.warnings = warnings_of(comparison);
  return comparison;
}

}  // namespace quire
