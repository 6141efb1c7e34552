// Matrix products.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =
};

// c [M, N] (+)= op(a) [M, K] op(b) [K, N]. Rank-2 tensors with unit inner stride and any outer stride, f32 or f64.
// c aliases neither a nor b.
extern Op<void(const Tensor& c, const Tensor& a, const Tensor& b, const GemmOptions& options)> gemm;

}  // namespace quire::ops
