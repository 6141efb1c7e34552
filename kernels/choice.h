// Choosing rows by their scores.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// index i32 [.., K] = the places of the K largest values of in [.., N] along the last axis, the largest first; equal
// values in the order of their places; NaN counts as larger than every number, so that it is seen. Only elements that
// mask (u8, shape of `in`, any strides, may be undefined) keeps; -1 where there are fewer than K. Contiguous; f32, f64
// or bf16.
QUIRE_OP(top_k, const Tensor& index, const Tensor& in, const Tensor& mask);

// rows i32 [B, M] = index[b, m] + b * per_batch: places in B tables of per_batch rows as places in one table of all. A
// negative index, which stands for no row, stays -1. An index from per_batch on is an error on the CPU; where the host
// does not read it, it becomes a row behind the last one.
QUIRE_OP(rows_of_tables, const Tensor& rows, const Tensor& index, int64_t per_batch);

}  // namespace quire::ops
