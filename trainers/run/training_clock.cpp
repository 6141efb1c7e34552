#include "trainers/run/training_clock.h"

#include <algorithm>

namespace quire {

namespace {

double number_of(const nlohmann::ordered_json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : 0.0;
}

}  // namespace

TrainingClock::TrainingClock(const std::vector<nlohmann::ordered_json>& metrics) {
  Point before;
  for (const nlohmann::ordered_json& line : metrics) {
    if (line.contains("evaluation") || !line.contains("step_ms")) continue;
    const auto step = static_cast<int64_t>(number_of(line, "step"));
    if (step <= before.step) continue;
    const double steps = static_cast<double>(step - before.step);
    before = {step, {number_of(line, "tokens"), before.time.seconds + steps * number_of(line, "step_ms") / 1000.0}};
    points_.push_back(before);
  }
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
