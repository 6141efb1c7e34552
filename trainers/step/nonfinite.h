// Handles steps whose loss or gradient is not finite, or too large for the moments: run.on_nonfinite.
#pragma once

#include <span>

#include "core/ranks/ranks.h"
#include "trainers/setup/training_state.h"

namespace quire {

// Losses of the targets of rows [begin, end), [rows * T]; 0 where a target does not count.
struct BlockLosses {
  int64_t begin, end;
  Tensor nll;
};

// Throws Error(numerics) when an earlier step has failed whose result the host had not read yet.
void require_finite(const TrainingState& training);

// Counts the step as skipped: weights and moments stay unchanged; rows with a loss that is not finite are emptied, the
// others commit. Returns how many rows are emptied on all ranks. Throws Error(numerics) after max_skips skipped steps
// in a row. loss and grad_norm are those of the step, for the message.
int64_t skip_step(TrainingState& training, const RunConfig& config, std::span<const BlockLosses> blocks, Ranks& ranks,
                  double loss, double grad_norm);

}  // namespace quire
