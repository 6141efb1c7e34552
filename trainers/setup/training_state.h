// Everything that a training step changes.
#pragma once

#include <memory>

#include "layers/state/state_pool.h"
#include "trainers/optimizer/optimizer.h"
#include "trainers/setup/gradient_reducer.h"
#include "trainers/setup/model.h"
#include "trainers/setup/weight_average.h"

namespace quire {

// Weights, moments and carried state of the rows of this rank.
struct TrainingState {
  // Declares the model, initialises its weights and makes empty state. vocabulary counts the tokenizer's ids.
  TrainingState(const RunConfig& config, int64_t vocabulary, const Machine& machine, const RankPlace& place = {});
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  int64_t first_row;  // global rows [first_row, last_row) belong to this rank
  int64_t last_row;
  ParameterStore store;
  Network network;
  std::unique_ptr<ParameterParts> parts;  // the parts of the arena that this rank updates
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<GradientReducer> reducer;  // nullptr with one rank
  std::unique_ptr<WeightAverage> average;    // nullptr unless optimizer.ema.decay is set
  std::unique_ptr<StatePool> state;
  AttentionChoices attention;  // layers with implementation: auto
  Tensor outcome;              // of the last step, on the device (ops::step_outcome)
  int64_t step = 0;            // finished steps, skipped ones included
  int64_t tokens = 0;          // targets seen, on all ranks
  int64_t skipped = 0;         // number of all steps without an update
  int64_t skips_in_a_row = 0;  // number of skipped steps since the last update
  int64_t logged = 0;          // the step of the last line in metrics.jsonl
};

}  // namespace quire
