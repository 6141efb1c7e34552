// Cross-entropy of rows of logits. The projection is a product of its own; functions/cross_entropy chunks both.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// logits [M, V], targets i32 [M], mask u8 [M]: nll [M] = mask * (logsumexp - logits[target]), lse [M].
extern Op<void(const Tensor& nll, const Tensor& lse, const Tensor& logits, const Tensor& targets, const Tensor& mask)>
    cross_entropy;
// In place: logits <- mask * factor * (softmax - onehot(target)); factor f64 [1].
extern Op<void(const Tensor& logits, const Tensor& lse, const Tensor& targets, const Tensor& mask,
               const Tensor& factor)>
    cross_entropy_backward;
// total (f64 [1]) = sum of in, in a fixed order.
extern Op<void(const Tensor& total, const Tensor& in)> sum_all;

}  // namespace quire::ops
