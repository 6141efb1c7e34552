// One step of a run.
#pragma once

#include <functional>

#include "core/ranks/ranks.h"
#include "trainers/run/training_state.h"

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

// Runs forward and backward passes over a batch, one block of rows after the other (data.accumulate). counts has the
// number of targets of the whole step for each loss term. on_loss is called with the rows [begin, end) and the losses
// of each block before its backward pass. telemetry, when given, receives the reports of the layers for each block.
// Gradients are sent to the other ranks during the last sweep.
void accumulate_gradients(TrainingState& training, const RunConfig& config, const Batch& batch,
                          const std::vector<double>& counts,
                          const std::function<void(int64_t begin, int64_t end, const LossTerms&)>& on_loss,
                          Ranks& ranks, Telemetry* telemetry = nullptr);

// Selects whether a step reads its loss, which waits for all queued work of a GPU. when_free reads only on devices that
// need no waiting, or when run.on_nonfinite needs the value; a failed step changes nothing, and a later step that reads
// reports it (trainers/run/nonfinite.h).
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
