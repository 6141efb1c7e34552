// Numbers to time kernels with.
#pragma once

#include "core/tensor.h"

namespace quire {

// Uniform in [-0.5, 0.5), the same in every call: with zeros a GPU runs faster than with any model's numbers.
Tensor random_values(const Shape& shape, DType dtype, Device device);

}  // namespace quire
