// One step of a run.
#pragma once

#include <functional>

#include "core/ranks/ranks.h"
#include "trainers/setup/training_state.h"
#include "trainers/step/step_counts.h"

namespace quire {

struct StepResult {
  double learning_rate = 0;
  bool read = true;  // whether loss and grad_norm were read from the device
  double loss = 0;   // mean nats per target over the global batch
  double grad_norm = 0;
  // Means of the other terms of the loss, and telemetry of the model; empty unless read.
  Telemetry telemetry;
  int64_t targets = 0;   // counted targets of all ranks
  bool skipped = false;  // because of a non-finite value
  double overlap = 0;    // the share of the gradient that was summed over ranks while this rank computed the rest
  double exchange_seconds = 0;  // time of this rank in exchanges, without those that overlap with the sweep
  int64_t cleared_rows = 0;     // on all ranks: rows whose own loss was not finite
};

// Forward and backward passes over a batch, one block of rows after the other (data.accumulate). counts has the number
// of targets of the whole step for each term of the loss. on_loss is called with the rows [begin, end) and the losses
// of each block before its backward pass. telemetry, when given, receives what the layers report of each block.
// Gradients leave for the other ranks in the last sweep.
void accumulate_gradients(TrainingState& training, const RunConfig& config, const Batch& batch,
                          const std::vector<double>& counts,
                          const std::function<void(int64_t begin, int64_t end, const LossTerms&)>& on_loss,
                          Ranks& ranks, Telemetry* telemetry = nullptr);

// Says whether a step reads its loss, which waits for everything that a GPU still has to do. when_free reads only on
// devices where nothing has to be waited for, or where run.on_nonfinite must know; a failed step changes nothing and is
// then reported by a later step that reads (trainers/step/nonfinite.h).
enum class ReadResult { always, when_free };

// One optimizer step on the rows of this rank. When the loss or the gradient is not finite, or too large for the
// moments, weights and moments stay as they were. What happens then is up to run.on_nonfinite:
//   stop  throws Error(numerics); carried state is as it was but for rows whose document begins in this step
//   skip  the step counts, rows commit what they carry, and those with a target whose loss is not finite are emptied.
//         A row's losses depend on that row alone, so neither ranks nor blocks of rows change which ones these are.
//         A gradient that overflows beside finite losses is no row's fault, and empties none. More skips in a row than
//         max_skips throw Error(numerics).
StepResult train_step(TrainingState& training, const RunConfig& config, const Batch& batch, Ranks& ranks,
                      ReadResult read = ReadResult::always);

}  // namespace quire
