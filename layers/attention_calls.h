// What model.attention.implementation means for each layer: the shape of its attention, and why cuDNN cannot compute
// it.
#pragma once

#include <string>
#include <vector>

#include "kernels/attention_choices.h"
#include "layers/model_config.h"

namespace quire {

struct AttentionCall {
  int64_t layer = 0;
  AttentionImplementation implementation = AttentionImplementation::own;
  AttentionProblem problem = {};
  // Empty, or what in the configuration keeps cuDNN from it. Its library and the device are not asked.
  std::string why_not_cudnn = {};
};

// Of all layers. rows: of a pass; several_documents: a row of a batch may hold several.
std::vector<AttentionCall> attention_calls(const ModelConfig& model, int64_t rows, int64_t subsequence,
                                           bool several_documents, DType type);

}  // namespace quire
