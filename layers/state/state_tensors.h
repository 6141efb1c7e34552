// Small helpers of the units in this folder.
#pragma once

#include <initializer_list>
#include <vector>

#include "core/tensor.h"
#include "kernels/elementwise.h"

namespace quire {

inline size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

inline Shape with_leading(std::initializer_list<int64_t> leading, const Shape& rest) {
  std::vector<int64_t> sizes(leading);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return Shape(sizes);
}

inline Tensor as_type(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor converted = Tensor::empty(tensor.shape(), dtype, tensor.device());
  ops::convert(converted, tensor);
  return converted;
}

}  // namespace quire
