// Which kernels compute the attention of a run (implementation: own, cudnn or auto).
#pragma once

#include <string>
#include <vector>

#include "trainers/run/training_state.h"

namespace quire {

// Error(config) when a layer asks for cuDNN and cannot have it, with the layer and the reason. On a GPU the plans are
// built, and kept. Every rank calls it, before anything is made for the run.
void require_attention(const RunConfig& config, const Machine& machine, const RankPlace& place);

// For layers with `auto`: chooses what no checkpoint has chosen yet. Root measures, and all ranks take its choices. On
// another device than a GPU nothing is chosen. Returns lines for the log.
std::vector<std::string> choose_attention(TrainingState& training, const RunConfig& config, const Machine& machine,
                                          Ranks& ranks);

// For plans of memory: chooses cuDNN for every layer with `auto` that may get it in a run. False: there is none.
bool choose_cudnn_where_it_may_be(AttentionChoices& choices, const RunConfig& config, DType type,
                                  const RankPlace& place);

// The versions that choices hold for: the first line of AttentionChoices::to_text.
std::string attention_heading(Device device);

}  // namespace quire
