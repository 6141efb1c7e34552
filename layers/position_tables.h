// Sinusoids by distance, computed once per size and shared by the layers of a model.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "core/tensor.h"

namespace quire {

class PositionTables {
 public:
  // [count, width], entry n at distance count - 1 - n (kernels/position.h).
  Tensor sinusoid(int64_t count, int64_t width, int64_t clamp, DType dtype, Device device);

 private:
  // Few sizes occur: the training length, and the last partial segment of a prompt.
  std::map<std::pair<int64_t, int64_t>, Tensor> tables_;  // (count, clamp)
};

}  // namespace quire
