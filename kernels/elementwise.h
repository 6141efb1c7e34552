// Elementwise operations and reductions over rows. Tensors are contiguous unless said otherwise, of f32 or f64, or of
// bf16 where the device has a kernel for it. Beside bf16, biases, scales of heads, their gradients and sums over rows
// are f32 (wide_type).
#pragma once

#include "core/random.h"
#include "kernels/op.h"

namespace quire::ops {

// out = in for any strides with equal shapes and element types.
QUIRE_OP(copy, const Tensor& out, const Tensor& in);
// out = in, converting between f64, f32 and bf16 (contiguous). Values become bf16 through f32, rounded to nearest, ties
// to even.
QUIRE_OP(convert, const Tensor& out, const Tensor& in);
// out = alpha * a + beta * b; out may be a or b.
QUIRE_OP(add, const Tensor& out, const Tensor& a, const Tensor& b, double alpha, double beta);
// out = a * b.
QUIRE_OP(multiply, const Tensor& out, const Tensor& a, const Tensor& b);
// out = alpha * in; out may be in.
QUIRE_OP(scale, const Tensor& out, const Tensor& in, double alpha);
// out = factor[0] * in; factor f64 [1] lies on the device of the tensors, so that the host need not wait for it.
QUIRE_OP(scale_by, const Tensor& out, const Tensor& in, const Tensor& factor);
// out [M, N] = in [M, N] + bias [N]; out may be in.
QUIRE_OP(add_bias, const Tensor& out, const Tensor& in, const Tensor& bias);
// out [N] (+)= sum over M of in [M, N].
QUIRE_OP(sum_rows, const Tensor& out, const Tensor& in, bool accumulate);
// x [M, H, D] times |s_h|: out = |s_h| x.   (attention with normalised queries and keys: Memorizing Transformers 3.2)
QUIRE_OP(scale_heads, const Tensor& out, const Tensor& x, const Tensor& s);
// dx = |s_h| dy;  ds [H] (+)= sign(s_h) sum dy x.
QUIRE_OP(scale_heads_backward, const Tensor& dx, const Tensor& ds, const Tensor& dy, const Tensor& x, const Tensor& s,
         bool accumulate);

// gelu: the tanh form of Hendrycks and Gimpel 2016; silu: x sigmoid(x); gelu_erf: x times the normal distribution, of
// which gelu is an approximation.
enum class Activation { relu, gelu, silu, gelu_erf };

QUIRE_OP(activation, const Tensor& out, const Tensor& in, Activation kind);
// dx = dy * activation'(x); dx may be dy.
QUIRE_OP(activation_backward, const Tensor& dx, const Tensor& dy, const Tensor& x, Activation kind);
// SwiGLU (Shazeer 2020): out = silu(gate) * up.
QUIRE_OP(swiglu, const Tensor& out, const Tensor& gate, const Tensor& up);
QUIRE_OP(swiglu_backward, const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate,
         const Tensor& up);

// Identifies the random numbers of a dropout. There is one 32-bit value per element: counter (scope, global row, token,
// element / 4), so masks do not depend on ranks, threads, micro-batches or recomputation.
struct DropoutKey {
  RandomKey key;
  uint32_t scope = 0;
  int64_t first_row = 0;  // global index of row 0
  double probability = 0;
};
// in [R, T, N]; out = (residual +) in * mask / (1 - p). residual may be undefined; out may be in or residual.
// The same operation is its backward pass: dx = dropout(dy).
QUIRE_OP(dropout, const Tensor& out, const Tensor& in, const Tensor& residual, const DropoutKey& key);

}  // namespace quire::ops
