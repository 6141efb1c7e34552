// Helpers of differentiable functions: dense copies of views, and gradients of inputs that were broadcast or converted.
#pragma once

#include "autograd/variable.h"

namespace quire {

// Returns x itself when it is contiguous, otherwise a contiguous copy.
Tensor dense(const Tensor& x);
// Returns x itself when it has the type, otherwise a copy in it. x is contiguous.
Tensor as_type(const Tensor& x, DType dtype);
// Returns the axis counted from the first one; a negative axis counts from the last. Throws Error(internal) that names
// the operation when there is no such axis.
int axis_of(const char* op, const Shape& shape, int axis);
// Returns the shape that both broadcast to, as in NumPy: missing axes in front and axes of size 1 are repeated. Throws
// Error(internal) that names the operation when they do not fit.
Shape broadcast_shape(const char* op, const Shape& a, const Shape& b);
// Adds a term (contiguous, of the shape that x was broadcast to) to the gradient of x, when x needs one; sums over the
// axes that were repeated.
void add_to_gradient(const Variable& x, const Tensor& term);

}  // namespace quire
