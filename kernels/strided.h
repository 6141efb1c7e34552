// For operations that move elements: the offsets of an element in several tensors of one shape with different strides,
// and an integer type for elements of some size. Used on the host and in kernels.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace quire {

template <int kOperands>
struct Strided {
  int rank = 0;  // after merging neighbouring axes that are contiguous in all operands
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

  // Writes at[o] = offset of element i (in row-major order) in operand o.
  constexpr void find(int64_t i, int64_t (&at)[kOperands]) const {
    for (int o = 0; o < kOperands; ++o) at[o] = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t place = axis == 0 ? i : i % size[axis];
      i /= size[axis];
      for (int o = 0; o < kOperands; ++o) at[o] += place * stride[o][axis];
    }
  }
};

// Calls function(T{}) with an unsigned integer of `bytes` bytes, for operations that only move elements.
template <typename Function>
void dispatch_size(size_t bytes, Function&& function) {
  switch (bytes) {
    case 8:
      return function(uint64_t{});
    case 4:
      return function(uint32_t{});
    case 2:
      return function(uint16_t{});
    default:
      return function(uint8_t{});
  }
}

}  // namespace quire
