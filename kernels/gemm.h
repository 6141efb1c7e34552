// Matrix products.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =
  Tensor bias = {};         // [N], optional: added to every row; not with accumulate

  template <typename F>
  void for_each_tensor(F& f) const {
    f(bias);
  }
};

// c [M, N] (+)= op(a) [M, K] op(b) [K, N] (+ bias). Rank-2 tensors with unit inner stride and any outer stride. a and b
// are f32, f64 or bf16; c is of their type, or f32 for bf16; bias is of the type that goes with theirs (wide_type).
// c aliases neither a nor b.
extern Op<void(const Tensor& c, const Tensor& a, const Tensor& b, const GemmOptions& options)> gemm;

}  // namespace quire::ops
