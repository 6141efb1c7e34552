// Operations that choose rows by their scores.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// index i32 [.., K] = the positions of the K largest values of in [.., N] along the last axis, the largest first; equal
// values are in the order of their positions; NaN counts as larger than every number, so that it is noticed. Only
// elements that mask keeps are chosen (u8, shape of `in`, any strides; undefined keeps all); -1 where there are fewer
// than K. Contiguous; f32, f64 or bf16.
QUIRE_OP(top_k, const Tensor& index, const Tensor& in, const Tensor& mask);

// rows i32 [B, M] = index[b, m] + b * per_batch: row numbers within B tables of per_batch rows become row numbers of
// one table that holds them all. A negative index, which stands for no row, becomes -1. An index of per_batch or more
// is an error on the CPU; on a GPU, where the host does not read it, it becomes a row behind the last one.
QUIRE_OP(rows_of_tables, const Tensor& rows, const Tensor& index, int64_t per_batch);

}  // namespace quire::ops
