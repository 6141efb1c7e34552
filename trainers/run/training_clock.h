// Tells from metrics.jsonl how many tokens and how much time a run had needed by a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainers/run/metric_columns.h"

namespace quire {

struct TrainingTime {
  double tokens = 0;   // targets trained on
  double seconds = 0;  // of training steps, without evaluations and checkpoints
};

class TrainingClock {
 public:
  explicit TrainingClock(const MetricColumns& metrics);

  // Interpolates between the logged steps around `step`, and goes on as before the last one after it. Returns nothing
  // when no step was logged.
  std::optional<TrainingTime> at(int64_t step) const;
  int64_t last_step() const { return points_.empty() ? 0 : points_.back().step; }

 private:
  struct Point {
    int64_t step = 0;
    TrainingTime time;
  };
  // Leaves out a step that is not after those before it.
  void add(int64_t step, double tokens, double step_ms);

  std::vector<Point> points_;  // ascending
};

}  // namespace quire
