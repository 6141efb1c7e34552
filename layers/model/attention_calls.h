// The calls of ops::attention that the layers of a model make in training steps.
#pragma once

#include <vector>

#include "layers/config/model_config.h"
#include "layers/pass/attention_call.h"

namespace quire {

// `rows` are those of a pass; several_documents says that a row of a batch may have several.
std::vector<AttentionCall> attention_calls(const ModelConfig& model, int64_t rows, int64_t subsequence,
                                           bool several_documents, DType type);

}  // namespace quire
