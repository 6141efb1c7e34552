// What timing a matrix product that adds takes beside its operands (run.products).
#pragma once

#include "core/tensor.h"

namespace quire {

// Where a tensor with the strides of c has room.
inline Tensor product_scratch(const Tensor& c, Device device) {
  int64_t last = 0;
  for (int i = 0; i < c.rank(); ++i) last += (c.dim(i) - 1) * c.stride(i);
  return Tensor::empty({last + 1}, c.dtype(), device);
}

}  // namespace quire
