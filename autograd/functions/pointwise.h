// Elementwise functions. Operands are broadcast as in NumPy; they have one type and one device. Formulas in
// kernels/pointwise.h.
#pragma once

#include "autograd/tape.h"

namespace quire {

Variable add(Tape& tape, const Variable& a, const Variable& b);
Variable subtract(Tape& tape, const Variable& a, const Variable& b);
Variable multiply(Tape& tape, const Variable& a, const Variable& b);
Variable divide(Tape& tape, const Variable& a, const Variable& b);
// When both are equal, a receives the gradient.
Variable maximum(Tape& tape, const Variable& a, const Variable& b);

Variable exp(Tape& tape, const Variable& x);
Variable log(Tape& tape, const Variable& x);
// The gradient is 0 where x is 0.
Variable square_root(Tape& tape, const Variable& x);
Variable sigmoid(Tape& tape, const Variable& x);
Variable tanh(Tape& tape, const Variable& x);
// x sigmoid(x)
Variable silu(Tape& tape, const Variable& x);

// Returns mask ? a : b; mask u8. One of a and b may be undefined, which stands for zeros.
Variable select(Tape& tape, const Tensor& mask, const Variable& a, const Variable& b);

// Returns the values in another floating-point type.
Variable convert(Tape& tape, const Variable& x, DType dtype);

}  // namespace quire
