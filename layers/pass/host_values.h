// Copies a few numbers between the host and tensors of any floating-point type.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace quire {

// dtype is f64 or f32.
Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype, Device device);
// Returns the values of a tensor of f64, f32 or bf16. It waits for the device; a meta tensor gives zeros.
std::vector<double> values_on_host(const Tensor& tensor);

}  // namespace quire
