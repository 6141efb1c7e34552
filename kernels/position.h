// Tables of position terms. Distances run from the query back to the key: d >= 0. In every table that attention reads,
// entry n of N belongs to distance N - 1 - n (the order of Transformer-XL's R before its relative shift).
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// out [N, E], E even: row n = [sin(d w_0) .. , cos(d w_0) ..], w_i = base^(-2i/E), d = min(N - 1 - n, clamp) (Dai et
// al. 2019, 3.3: base 10000; clamp 0 is off). Angles are computed in f64.
QUIRE_OP(sinusoid, const Tensor& out, int64_t clamp, double base);
// Writes the same rows for given positions: row n of out [N, E] has d = position[n], i32 [N]. (Vaswani et al. 2017,
// 3.5)
QUIRE_OP(sinusoid_at, const Tensor& out, const Tensor& position, double base);
// out [H, N] = table [H, B] at index i32 [N].
QUIRE_OP(gather_columns, const Tensor& out, const Tensor& table, const Tensor& index);
// dtable [H, B] += sums of dout [H, N] over equal index, in order.
QUIRE_OP(gather_columns_backward, const Tensor& dtable, const Tensor& dout, const Tensor& index);

}  // namespace quire::ops
