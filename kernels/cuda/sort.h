// Sorting, from a library on the GPU (sort.cu, with CUB) and on the host in tests.
#pragma once

#include "core/tensor.h"

namespace quire::cuda {

// Sorts pairs by key; the sort is stable, and keys are at least 0 and below 2^key_bits. All tensors are i32 and of
// equal length; the inputs may be overwritten.
void sort_pairs(const Tensor& sorted_keys, const Tensor& sorted_values, const Tensor& keys, const Tensor& values,
                int key_bits);

// Returns the number of bits of keys up to `largest`.
inline int bits_of(int64_t largest) {
  int bits = 1;
  while (largest >> bits != 0) ++bits;
  return bits;
}

}  // namespace quire::cuda
