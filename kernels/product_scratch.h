// The scratch for timing a matrix product that accumulates (run.products).
#pragma once

#include "core/tensor.h"

namespace quire {

// Returns memory in which a tensor with the strides of c fits.
inline Tensor product_scratch(const Tensor& c, Device device) {
  int64_t last = 0;
  for (int i = 0; i < c.rank(); ++i) last += (c.dim(i) - 1) * c.stride(i);
  return Tensor::empty({last + 1}, c.dtype(), device);
}

}  // namespace quire
