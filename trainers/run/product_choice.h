// Chooses among a library's algorithms for the matrix products of a run (run.products).
#pragma once

#include <string>
#include <vector>

#include "core/batch.h"
#include "trainers/run/training_state.h"

namespace quire {

// Runs forward and backward passes of the next step on this rank alone. It leaves no trace: train_step() with this
// batch gives the same bits as without it.
void rehearse_step(TrainingState& training, const RunConfig& config, const Batch& batch);

// With run.products: timed, before the first step of a process: root times the products of the step with this batch,
// unless the run continues from a checkpoint of a run with passes of the same size, and all ranks take its choices.
// Every rank calls it with the next batch. Returns lines for the log.
std::vector<std::string> choose_products(TrainingState& training, const RunConfig& config, const Batch& batch,
                                         DeviceBackend& device, Ranks& ranks);

}  // namespace quire
