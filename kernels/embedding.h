// Token embedding.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// out [M, E] = scale * table[ids[m]]; ids i32 below V. A negative id is a row of another table: zeros, and no gradient.
// Ids from V on are an error on the CPU; rows of NaN, and no gradient, where the host does not read them.
QUIRE_OP(embedding, const Tensor& out, const Tensor& table, const Tensor& ids, double scale);
// dtable [V, E] (f32 beside bf16) += scale * sum of dout over equal ids, in order of position: deterministic.
QUIRE_OP(embedding_backward, const Tensor& dtable, const Tensor& dout, const Tensor& ids, double scale);

}  // namespace quire::ops
