// Norms of the weights and of the gradient of every layer (log.norms).
#pragma once

#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "trainers/setup/training_state.h"

namespace quire {

struct LayerNorms {
  std::string layer;    // "blocks.3", or the first part of a parameter's name: "embedding"
  double weights = 0;   // L2 norm of its parameters
  double gradient = 0;  // of the last step, over all ranks, before clipping
};

// Returns those of all layers, in the order of the parameters; call it after train_step(), on every rank. It waits for
// the device.
std::vector<LayerNorms> layer_norms(const TrainingState& training, Ranks& ranks);

}  // namespace quire
