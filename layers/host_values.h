// Few numbers on their way between the host and tensors of any floating type.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace quire {

// f64, or f32; other types are not made from the host.
Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype, Device device);
// Of f64, f32 or bf16. Waits for the device; zeros where a device only counts.
std::vector<double> values_on_host(const Tensor& tensor);

}  // namespace quire
