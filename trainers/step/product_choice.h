// Which of a library's ways to run a matrix product a run takes (run.products).
#pragma once

#include <string>
#include <vector>

#include "core/batch.h"
#include "trainers/setup/training_state.h"

namespace quire {

// Forward and backward passes of the next step on this rank alone. Nothing of it stays: train_step() with this batch
// gives the same bits as without it.
void rehearse_step(TrainingState& training, const RunConfig& config, const Batch& batch);

// With run.products: timed, before the first step that a process takes: root times the products of the step with this
// batch, unless it goes on from a checkpoint of a run with passes of the same size, and all ranks take its choices.
// Every rank calls it with the batch that comes next. Returns lines for the log.
std::vector<std::string> choose_products(TrainingState& training, const RunConfig& config, const Batch& batch,
                                         DeviceBackend& device, Ranks& ranks);

}  // namespace quire
