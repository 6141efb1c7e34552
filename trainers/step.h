// What a run changes from step to step, and one step of it.
#pragma once

#include <memory>

#include "core/communicator.h"
#include "trainers/model.h"
#include "trainers/optimizer.h"

namespace quire {

// Weights, moments and carried state of the rows of this rank.
struct TrainingState {
  // Declares the model, draws its weights and makes empty state. vocabulary counts the tokenizer's ids.
  TrainingState(const RunConfig& config, int64_t vocabulary, const Machine& machine, const Communicator& communicator);
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  int64_t first_row;  // global rows [first_row, last_row) belong to this rank
  int64_t last_row;
  ParameterStore store;
  Network network;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<StatePool> state;
  int64_t step = 0;    // finished optimizer steps
  int64_t tokens = 0;  // targets seen, on all ranks
};

struct StepResult {
  double loss = 0;  // mean nats per target over the global batch
  double grad_norm = 0;
  double learning_rate = 0;
  int64_t targets = 0;  // of all ranks
};

// One optimizer step on the rows of this rank. Throws Error(numerics) when the loss or the gradient is not finite:
// weights and moments are then as they were, and so is carried state but for rows whose document begins in this step.
StepResult train_step(TrainingState& training, const RunConfig& config, const Batch& batch, Communicator& communicator);

}  // namespace quire
