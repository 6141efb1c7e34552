// Sums and softmax along one axis. f32, f64 or bf16 on every device; bf16 is computed in f32.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// out = factor * sum of `in` over an axis, in a fixed order. Contiguous; out lacks that axis.
QUIRE_OP(sum_axis, const Tensor& out, const Tensor& in, int axis, double factor);
// out[i] = sum of in[0..i] along an axis, or of in[i..] when reverse is set; contiguous.
QUIRE_OP(cumulative_sum, const Tensor& out, const Tensor& in, int axis, bool reverse);

// Softmax over the last axis of `in` [.., N], contiguous: out = exp(in - lse), lse [..] = log(sum(exp(in))), over the
// elements that mask keeps (u8, shape of `in`, any strides; undefined keeps all). The other elements are 0 in out;
// where mask keeps none, lse is -inf. out or lse may be undefined. lse is f32 beside bf16 (wide_type).
QUIRE_OP(softmax, const Tensor& out, const Tensor& lse, const Tensor& in, const Tensor& mask);
// din = out * (dout - sum(dout * out)) + out * dlse. dout [.., N] or dlse [..] (type of lse) may be undefined.
QUIRE_OP(softmax_backward, const Tensor& din, const Tensor& dout, const Tensor& dlse, const Tensor& out);

}  // namespace quire::ops
