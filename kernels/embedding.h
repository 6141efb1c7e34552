// Token embedding.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// out [M, E] = scale * table[ids[m]]; ids i32 below V. A negative id belongs to another table: its row is zero and has
// no gradient. An id of V or more is an error on the CPU; on a GPU, where the host does not read ids, its row is NaN
// and has no gradient.
QUIRE_OP(embedding, const Tensor& out, const Tensor& table, const Tensor& ids, double scale);
// dtable [V, E] (f32 beside bf16) += scale * sum of dout over equal ids, in order of position: deterministic.
QUIRE_OP(embedding_backward, const Tensor& dtable, const Tensor& dout, const Tensor& ids, double scale);

}  // namespace quire::ops
