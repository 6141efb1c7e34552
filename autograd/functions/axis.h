// Sums and softmax along one axis; formulas in kernels/axis.h. A negative axis counts from the last one.
#pragma once

#include "autograd/tape.h"

namespace quire {

// The result lacks the axis, or has it with size 1 when `keep` is set.
Variable sum(Tape& tape, const Variable& x, int axis, bool keep = false);
Variable mean(Tape& tape, const Variable& x, int axis, bool keep = false);
// Returns the sum of all values, f64 [1], as a loss.
Variable total(Tape& tape, const Variable& x);
// y[i] = x[0] + .. + x[i]
Variable cumulative_sum(Tape& tape, const Variable& x, int axis);

// Returns the softmax over the last axis, of the elements that mask keeps (u8, broadcast to x; undefined keeps all).
// The other elements are 0, and so is a row of which mask keeps none.
Variable softmax(Tape& tape, const Variable& x, const Tensor& mask = {});
// Returns the log of the sum of exp(x) over the last axis, of the elements that mask keeps; -inf and no gradient where
// it keeps none. The result is f32 for bf16 (wide_type).
Variable log_sum_exp(Tape& tape, const Variable& x, const Tensor& mask = {});

}  // namespace quire
