// Rings of carried entries (StatePool logs). A ring has C slots a row; head [R] is the slot of the next write, the
// newest entry is at head - 1, length [R] entries are valid.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// ring [R, C, N]: slot (head + j) % C <- values [R, T, N] at begin + j stride, 0 <= j < count. head, begin, count i32
// [R].
QUIRE_OP(ring_append, const Tensor& ring, const Tensor& values, const Tensor& head, const Tensor& begin,
         const Tensor& count, int64_t stride);
// out [R, M, N]: the newest M entries in order of age, newest last, zero where there is none. head, length i32 [R].
QUIRE_OP(ring_gather, const Tensor& out, const Tensor& ring, const Tensor& head, const Tensor& length);

}  // namespace quire::ops
