// Compares runs at equal time and at equal tokens.
#include <fmt/format.h>

#include <algorithm>

#include "trainers/compare/comparison.h"

namespace quire {

namespace {

// Returns the smallest mean over a group of what its runs have used in all; nothing where a run tells none.
std::optional<double> smallest_use(const Comparison& comparison, std::optional<double> ComparedRun::*used) {
  std::optional<double> smallest;
  for (const RunGroup& group : comparison.groups) {
    double sum = 0;
    for (const size_t number : group.runs) {
      const ComparedRun& run = comparison.runs[number];
      if (!(run.*used) || run.curve.empty()) return std::nullopt;
      sum += *(run.*used);
    }
    const double mean = sum / static_cast<double>(group.runs.size());
    smallest = std::min(smallest.value_or(mean), mean);
  }
  return smallest;
}

// Returns the step and the figure of a run at a budget, on a line between the evaluations beside it; the last ones
// after the last evaluation, and nothing before the first.
std::optional<std::pair<double, double>> at_budget(const ComparedRun& run, CompareMetric metric, double budget,
                                                   double CurvePoint::*at) {
  const auto figure = [&](const CurvePoint& point) {
    return metric == CompareMetric::bits_per_byte ? *point.bits_per_byte : point.loss;
  };
  const std::vector<CurvePoint>& curve = run.curve;
  const auto after =
      std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& point) { return point.*at > budget; });
  if (after == curve.begin()) return std::nullopt;
  const CurvePoint& before = *(after - 1);
  const auto step = static_cast<double>(before.step);
  if (after == curve.end()) return std::pair(step, figure(before));
  const double share = (budget - before.*at) / (*after.*at - before.*at);
  return std::pair(step + share * static_cast<double>(after->step - before.step),
                   figure(before) + share * (figure(*after) - figure(before)));
}

}  // namespace

EqualBudget equal_budget(const Comparison& comparison, std::optional<double> ComparedRun::*used,
                         double CurvePoint::*at) {
  EqualBudget result;
  result.budget = smallest_use(comparison, used);
  if (!result.budget) {
    const auto lacks = std::find_if(comparison.runs.begin(), comparison.runs.end(),
                                    [&](const ComparedRun& run) { return !(run.*used) || run.curve.empty(); });
    result.without = lacks->curve.empty()
                         ? fmt::format("{} has not evaluated split {} while training", lacks->path, comparison.split)
                         : fmt::format("{} was kept without its training time", lacks->path);
    return result;
  }
  for (const RunGroup& group : comparison.groups) {
    EqualBudget::Group& of = result.groups.emplace_back();
    std::vector<double> values;
    for (const size_t number : group.runs) {
      const auto found = at_budget(comparison.runs[number], comparison.budget_metric, *result.budget, at);
      if (!found) continue;
      of.steps.push_back(found->first);
      values.push_back(found->second);
    }
    // A mean over some of the runs would be one of other seeds.
    if (values.size() == group.runs.size()) of.figure = spread_of(values);
  }
  return result;
}

}  // namespace quire
