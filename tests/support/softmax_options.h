#pragma once

#include "layers/config/model_config.h"
#include "layers/mixers/softmax_config.h"

namespace quire::test {

inline SoftmaxConfig& softmax_options(ModelConfig& model) {
  return model.attention.mechanism.options.get<SoftmaxConfig>();
}

}  // namespace quire::test
