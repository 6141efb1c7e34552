// Matrix products.
#pragma once

#include <optional>

#include "kernels/elementwise.h"

namespace quire::ops {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =
  // Neither goes with accumulate. The bias [N] is added to every row, then the activation is applied; pre (shape and
  // type of c, contiguous) keeps what it was applied to.
  Tensor bias = {};
  std::optional<Activation> activation = {};
  Tensor pre = {};

  template <typename F>
  void for_each_tensor(F& f) const {
    f(bias);
    f(pre);
  }
};

// c [M, N] (+)= op(a) [M, K] op(b) [K, N], or activation(op(a) op(b) + bias). Rank-2 tensors with unit inner stride and
// any outer stride; or rank-3 tensors [B, .., ..], B such products, without bias and activation and with any stride
// between them (0 for an operand of all). a and b are f32, f64 or bf16; c is of their type, or f32 for bf16; bias is of
// the type that goes with theirs (wide_type). c aliases neither a nor b.
QUIRE_OP(gemm, const Tensor& c, const Tensor& a, const Tensor& b, const GemmOptions& options);

}  // namespace quire::ops
