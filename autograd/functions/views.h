// The same values in another shape. Results are contiguous: where a view is not, it is copied.
#pragma once

#include <span>

#include "autograd/tape.h"

namespace quire {

Variable reshape(Tape& tape, const Variable& x, const Shape& shape);
// Elements [begin, end) of an axis; a negative axis counts from the last one.
Variable slice(Tape& tape, const Variable& x, int axis, int64_t begin, int64_t end);
// Tensors one behind the other along an axis; their other sizes agree.
Variable concatenate(Tape& tape, std::span<const Variable> parts, int axis);
// Axis i of the result is axis axes[i] of x.
Variable permute(Tape& tape, const Variable& x, std::span<const int> axes);
Variable permute(Tape& tape, const Variable& x, std::initializer_list<int> axes);
// x repeated along axes of size 1 and along new axes in front.
Variable broadcast(Tape& tape, const Variable& x, const Shape& shape);

}  // namespace quire
