#include "trainers/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "core/check.h"

namespace quire {

namespace {

template <typename Has>
CompareMetric metric_where(const std::vector<ComparedRun>& runs, const Has& has_bits) {
  return std::all_of(runs.begin(), runs.end(), has_bits) ? CompareMetric::bits_per_byte : CompareMetric::nats_per_token;
}

GroupFigures figures_of(const RunGroup& group, const Comparison& comparison) {
  const std::vector<ComparedRun>& runs = comparison.runs;
  std::vector<double> bits, perplexities, losses;
  for (const size_t number : group.runs) {
    const StoredEvaluation& evaluation = runs[number].evaluation;
    if (const auto value = evaluation.bits_per_byte()) bits.push_back(*value);
    losses.push_back(evaluation.loss());
    perplexities.push_back(std::exp(losses.back()));
  }
  if (bits.size() < losses.size()) bits.clear();
  GroupFigures figures{spread_of(bits), spread_of(perplexities), spread_of(losses), {}};
  for (const DocumentMetric& metric : comparison.metrics) {
    std::vector<double> values;
    for (const size_t number : group.runs) {
      if (const auto value = metric.of(runs[number].evaluation)) values.push_back(*value);
    }
    figures.of_metrics.push_back(spread_of(values));
  }
  return figures;
}

size_t group_of(const Comparison& comparison, size_t run) {
  const auto found = std::find_if(comparison.groups.begin(), comparison.groups.end(), [&](const RunGroup& group) {
    return std::find(group.runs.begin(), group.runs.end(), run) != group.runs.end();
  });
  return static_cast<size_t>(found - comparison.groups.begin());
}

std::vector<DocumentMetric> metrics_of(const Comparison& comparison, const std::vector<DocumentMetric>& chosen) {
  if (chosen.empty()) {
    const bool bits = comparison.metric == CompareMetric::bits_per_byte;
    return {{bits ? DocumentMetric::Kind::bits_per_byte : DocumentMetric::Kind::nats_per_token, 0}};
  }
  for (const DocumentMetric& metric : chosen) {
    for (const ComparedRun& run : comparison.runs) {
      if (metric.is_in(run.evaluation)) continue;
      fail(ErrorKind::config, "{}: its evaluation has no {}; leave this metric out", run.path, metric.name());
    }
  }
  return chosen;
}

// Adds the differences of a group from the baseline, and from the groups that it is compared with besides.
void add_differences(Comparison& comparison, size_t group, const std::vector<std::pair<size_t, size_t>>& besides) {
  std::vector<size_t> others;
  if (group != comparison.baseline) others.push_back(comparison.baseline);
  for (const auto& [run, beside] : besides) {
    const size_t other = group_of(comparison, beside);
    if (group_of(comparison, run) != group || other == group) continue;
    if (std::find(others.begin(), others.end(), other) == others.end()) others.push_back(other);
  }
  for (const size_t other : others) {
    for (size_t metric = 0; metric < comparison.metrics.size(); ++metric) {
      comparison.differences.push_back(group_difference(comparison, group, other, metric));
    }
  }
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

Comparison compare_runs(std::vector<ComparedRun> runs, const std::string& split, size_t baseline,
                        const ComparisonChoices& choices) {
  Comparison comparison;
  comparison.split = split;
  comparison.runs = std::move(runs);
  comparison.groups = group_runs(comparison.runs);
  comparison.baseline = group_of(comparison, baseline);
  const std::vector<ComparedRun>& all = comparison.runs;
  comparison.metric = metric_where(all, [](const ComparedRun& run) { return run.evaluation.has_text; });
  comparison.position_metric =
      metric_where(all, [](const ComparedRun& run) { return run.evaluation.has_bytes_by_position; });
  comparison.budget_metric = metric_where(all, [](const ComparedRun& run) {
    return std::all_of(run.curve.begin(), run.curve.end(),
                       [](const CurvePoint& point) { return point.bits_per_byte.has_value(); });
  });
  comparison.metrics = metrics_of(comparison, choices.metrics);
  for (const RunGroup& group : comparison.groups) comparison.figures.push_back(figures_of(group, comparison));
  for (size_t group = 0; group < comparison.groups.size(); ++group) {
    add_differences(comparison, group, choices.besides);
  }
  add_positions(comparison);
  comparison.equal_time = equal_budget(comparison, &ComparedRun::final_seconds, &CurvePoint::seconds);
  comparison.equal_tokens = equal_budget(comparison, &ComparedRun::final_tokens, &CurvePoint::tokens);
  comparison.configuration = differing_keys(all, comparison.groups);
  comparison.warnings = warnings_of(comparison);
  return comparison;
}

}  // namespace quire
