// Several tensors of one shape with strides of their own, walked together. Used on the host and in kernels.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace quire {

template <int kOperands>
struct Strided {
  int rank = 0;  // of what is left when axes that all operands step through evenly are one
  int64_t size[kMaxRank] = {};
  int64_t stride[kOperands][kMaxRank] = {};
  int64_t count = 1;

  // An undefined operand has strides of 0.
  explicit Strided(const Tensor* const (&operands)[kOperands]) {
    const Shape& shape = operands[0]->shape();
    for (int axis = 0; axis < shape.rank(); ++axis) {
      count *= shape[axis];
      if (shape[axis] == 1) continue;
      int64_t step[kOperands];
      bool continues = rank > 0;
      for (int o = 0; o < kOperands; ++o) {
        step[o] = operands[o]->defined() ? operands[o]->stride(axis) : 0;
        continues = continues && stride[o][rank - 1] == step[o] * shape[axis];
      }
      if (!continues) size[rank++] = 1;
      size[rank - 1] *= shape[axis];
      for (int o = 0; o < kOperands; ++o) stride[o][rank - 1] = step[o];
    }
  }

  // Where element i (in row-major order) of each operand lies.
  constexpr void find(int64_t i, int64_t (&at)[kOperands]) const {
    for (int o = 0; o < kOperands; ++o) at[o] = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t place = axis == 0 ? i : i % size[axis];
      i /= size[axis];
      for (int o = 0; o < kOperands; ++o) at[o] += place * stride[o][axis];
    }
  }
};

}  // namespace quire
