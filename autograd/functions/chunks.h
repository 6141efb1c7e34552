// Attention to chosen chunks with given weights; shapes and formula in kernels/chunk_attention.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/chunk_attention.h"

namespace quire {

// Returns [R, T, H, Dv]. chosen i32 [R, Hk, T, K].
Variable chunk_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                         const Variable& weight, const Tensor& chosen, double scale);

}  // namespace quire
