// Elementwise operations of two operands, and functions of one: part of the vocabulary from which mechanisms are
// composed. f32, f64 or bf16, on every device; bf16 is computed in f32.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

enum class Binary { sum, difference, product, quotient, maximum };

// out = a (kind) b. The operands have the shape of out and any strides (Tensor::broadcast repeats values); out has any
// strides without repetition and may be an operand. maximum: NaN when one of them is.
QUIRE_OP(binary, const Tensor& out, const Tensor& a, const Tensor& b, Binary kind);
// da = dout * d(a (kind) b)/da, db likewise; contiguous, undefined ones are not computed. Where both operands of
// maximum are equal the gradient goes to a.
QUIRE_OP(binary_backward, const Tensor& da, const Tensor& db, const Tensor& dout, const Tensor& a, const Tensor& b,
         Binary kind);

enum class Unary { exp, log, square_root, sigmoid, tanh };

// out = kind(in), contiguous; out may be in.
QUIRE_OP(unary, const Tensor& out, const Tensor& in, Unary kind);
// din = dout * kind'(in), out the result. square_root: din is 0 where the result is 0, which has no derivative.
QUIRE_OP(unary_backward, const Tensor& din, const Tensor& dout, const Tensor& in, const Tensor& out, Unary kind);

// out = mask ? a : b. mask u8; all have the shape of out and any strides. An undefined operand is zero. For every
// element type of 1, 2, 4 or 8 bytes.
QUIRE_OP(select, const Tensor& out, const Tensor& mask, const Tensor& a, const Tensor& b);

}  // namespace quire::ops
