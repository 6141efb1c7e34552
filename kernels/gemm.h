// Matrix products.
#pragma once

#include <optional>

#include "kernels/elementwise.h"

namespace quire::ops {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // c += instead of c =
  // bias [N] is added to every row, then the activation is applied; pre (shape and type of c, contiguous) receives the
  // values before the activation. Neither bias nor activation goes with accumulate.
  Tensor bias = {};
  std::optional<Activation> activation = {};
  Tensor pre = {};
  // Added to the product with its bias: shape and type of c, contiguous (c then is, too), and not c itself. It excludes
  // accumulation and activation.
  Tensor residual = {};
  // Makes c the gradient of the argument of an activation: the product is multiplied by the derivative of the
  // activation at `at` (shape and type of c, contiguous), which is the argument or, for ReLU, its result. It allows
  // only transpositions.
  std::optional<Activation> gradient_of = {};
  Tensor at = {};
  // Receives the sum of each row of op(a) [M], or adds it: with the gradient of a weight, dy^T x, this is the gradient
  // of a bias. It is contiguous and of a's wide_type. a must be transposed and contiguous; only accumulation is allowed
  // with it.
  Tensor sums = {};
  bool add_sums = false;

  template <typename F>
  void for_each_tensor(F& f) const {
    f(bias);
    f(pre);
    f(residual);
    f(at);
    f(sums);
  }
};

// c [M, N] (+)= op(a) [M, K] op(b) [K, N]; or activation(op(a) op(b) + bias), residual + (op(a) op(b) + bias) or
// (op(a) op(b)) gradient_of'(at). The tensors are of rank 2 with unit inner stride and any outer stride; or of rank 3
// [B, .., ..] for B such products, with nothing but accumulation and with any stride between the matrices (0 where one
// matrix serves all B). a and b are f32, f64 or bf16; c is of their type, or f32 for bf16; bias is of their wide_type.
// c aliases neither a nor b.
QUIRE_OP(gemm, const Tensor& c, const Tensor& a, const Tensor& b, const GemmOptions& options);

}  // namespace quire::ops
