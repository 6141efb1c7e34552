// Values to time kernels with.
#pragma once

#include "core/tensor.h"

namespace quire {

// Returns a tensor of f32, f64 or bf16, uniform in [-0.5, 0.5) and the same in every call. (With zeros a GPU runs
// faster than with any model's numbers.)
Tensor random_values(const Shape& shape, DType dtype, Device device);

}  // namespace quire
