#include "trainers/run/training_clock.h"

#include <algorithm>
#include <cmath>

namespace quire {

TrainingClock::TrainingClock(const MetricColumns& metrics) {
  const std::vector<double>* const tokens = metrics.field("tokens");
  const std::vector<double>* const step_ms = metrics.field("step_ms");
  const auto value = [](const std::vector<double>* values, size_t row) {
    return values == nullptr || std::isnan((*values)[row]) ? 0.0 : (*values)[row];
  };
  if (step_ms == nullptr) return;
  for (size_t row = 0; row < metrics.steps.size(); ++row) {
    add(static_cast<int64_t>(metrics.steps[row]), value(tokens, row), value(step_ms, row));
  }
}

void TrainingClock::add(int64_t step, double tokens, double step_ms) {
  const Point before = points_.empty() ? Point{} : points_.back();
  if (step <= before.step) return;
  const double seconds = static_cast<double>(step - before.step) * step_ms / 1000.0;
  points_.push_back({step, {tokens, before.time.seconds + seconds}});
}

std::optional<TrainingTime> TrainingClock::at(int64_t step) const {
  if (points_.empty()) return std::nullopt;
  const auto after = std::lower_bound(points_.begin(), points_.end(), step,
                                      [](const Point& point, int64_t at_step) { return point.step < at_step; });
  if (after != points_.end() && after->step == step) return after->time;
  const size_t end = after == points_.end() ? points_.size() - 1 : static_cast<size_t>(after - points_.begin());
  const Point begin = end == 0 ? Point{} : points_[end - 1];
  const double share = static_cast<double>(step - begin.step) / static_cast<double>(points_[end].step - begin.step);
  const TrainingTime& last = points_[end].time;
  return TrainingTime{begin.time.tokens + share * (last.tokens - begin.time.tokens),
                      begin.time.seconds + share * (last.seconds - begin.time.seconds)};
}

}  // namespace quire
