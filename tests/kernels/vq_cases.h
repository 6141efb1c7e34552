// Code that the cases of Transformer-VQ share.
#pragma once

#include <vector>

#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

using Tensors = std::vector<Tensor>;

inline int32_t at(const Tensor& integers, int64_t i) {
  return integers.data<int32_t>()[i];
}

// Whole numbers in [low, high), as counts are kept.
inline Tensor whole(RandomTensors& random, const Shape& shape, int64_t low, int64_t high) {
  return recast(random.integers(shape, low, high), DType::f64);
}

}  // namespace quire::test
