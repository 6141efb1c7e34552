// Which kernels compute the attention of a run (implementation: own, cudnn or auto).
#pragma once

#include <string>
#include <vector>

#include "trainers/setup/training_state.h"

namespace quire {

// Throws Error(config), with the layer and the reason, when a layer asks for cuDNN and cannot have it. On a GPU this
// builds the plans and keeps them. Every rank calls it, before anything is made for the run.
void require_attention(const RunConfig& config, const Machine& machine, const RankPlace& place);

// For layers with `auto`: chooses kernels for the problems that no checkpoint has chosen for yet. Root measures, and
// all ranks take its choices. Without a GPU nothing is chosen. Returns lines for the log.
std::vector<std::string> choose_attention(TrainingState& training, const RunConfig& config, const Machine& machine,
                                          Ranks& ranks);

// For plans of memory: chooses cuDNN for every layer with `auto` that may get it in a run. Returns false when there is
// none.
bool choose_cudnn_where_it_may_be(AttentionChoices& choices, const RunConfig& config, DType type,
                                  const RankPlace& place);

// Returns the versions that choices are valid for: the first line of AttentionChoices::to_text.
std::string attention_heading(Device device);

}  // namespace quire
