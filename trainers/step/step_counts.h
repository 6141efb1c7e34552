// The beginning of a step: what its passes divide by.
#pragma once

#include <string>
#include <vector>

#include "trainers/setup/model.h"

namespace quire {

// The terms of the loss on this rank, with the number of targets of each.
struct StepCounts {
  std::vector<std::string> names;
  std::vector<double> counts;
};
// Begins a step: counts what its passes divide by, and lets learners begin. update: the number of updates with this
// one.
StepCounts begin_step(LanguageModel& model, const RunConfig& config, const Batch& batch, int64_t step, int64_t update);

}  // namespace quire
