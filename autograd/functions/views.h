// Functions that keep the values and change the shape. Results are contiguous: a view that is not contiguous is copied.
#pragma once

#include <span>

#include "autograd/tape.h"

namespace quire {

Variable reshape(Tape& tape, const Variable& x, const Shape& shape);
// Returns elements [begin, end) of an axis; a negative axis counts from the last one.
Variable slice(Tape& tape, const Variable& x, int axis, int64_t begin, int64_t end);
// Joins tensors along an axis; their other sizes agree.
Variable concatenate(Tape& tape, std::span<const Variable> parts, int axis);
// Axis i of the result is axis axes[i] of x.
Variable permute(Tape& tape, const Variable& x, std::span<const int> axes);
Variable permute(Tape& tape, const Variable& x, std::initializer_list<int> axes);
// Repeats x along axes of size 1 and along new leading axes.
Variable broadcast(Tape& tape, const Variable& x, const Shape& shape);

}  // namespace quire
