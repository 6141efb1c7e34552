// Sums and softmax along one axis; formulas in kernels/axis.h. A negative axis counts from the last one.
#pragma once

#include "autograd/tape.h"

namespace quire {

// Without the axis in the result, or with size 1 when `keep` is set.
Variable sum(Tape& tape, const Variable& x, int axis, bool keep = false);
Variable mean(Tape& tape, const Variable& x, int axis, bool keep = false);
// The sum of all values, f64 [1]: a loss.
Variable total(Tape& tape, const Variable& x);
// y[i] = x[0] + .. + x[i]
Variable cumulative_sum(Tape& tape, const Variable& x, int axis);

// Over the last axis, of the elements that mask (u8, broadcast to x, may be undefined) keeps; the others are 0, and so
// is a row without any.
Variable softmax(Tape& tape, const Variable& x, const Tensor& mask = {});
// Without the last axis: log of the sum of exp(x) of the elements that mask keeps; -inf without any, and then no
// gradient. f32 for bf16 (wide_type).
Variable log_sum_exp(Tape& tape, const Variable& x, const Tensor& mask = {});

}  // namespace quire
