// The plan of a run whose batches are made as they are.
#pragma once

#include "trainers/plan/plan.h"

namespace quire {

// Makes two steps and an evaluation on Device::meta. The batches themselves take 56 bytes a token in memory of the
// host.
Plan make_whole_plan(const RunConfig& config, int64_t ranks, int threads);

}  // namespace quire
