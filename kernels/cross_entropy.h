// Cross-entropy of rows of logits. The projection to logits is a separate product; projection_cross_entropy
// (autograd/functions/embedding.h) does both in chunks of tokens.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// Terms that are added to the negative log-likelihood of a row x with target t, and to its gradient:
//   smoothing (u - nll) + log_sum_weight log_sum^2,   log_sum = logsumexp(x), u = log_sum - mean(x)
// smoothing is label smoothing (Szegedy et al. 2016): a share of the target is spread over all V ids. The square is the
// z-loss (Chowdhery et al. 2022). The tensors log_sum and uniform [M] receive log_sum and u where they are defined, in
// the type of nll and with its mask; smoothing above 0 needs uniform.
struct CrossEntropyTerms {
  double smoothing = 0;
  double log_sum_weight = 0;
  Tensor log_sum = {};
  Tensor uniform = {};

  template <typename F>
  void for_each_tensor(F& f) const {
    f(log_sum);
    f(uniform);
  }
};

// Rows of logits and of their gradients may have gaps between them. logits [M, V], targets i32 [M], mask u8 [M]: nll
// [M] = mask * (logsumexp - logits[target]), f32 beside bf16. A target that mask counts but that is outside the
// vocabulary is an error on the CPU; on a GPU, where the host does not read targets, its nll is NaN. dlogits = mask *
// factor * (softmax - onehot(target)), and the gradient of `terms`, with factor f64 [1]; when both are undefined, it is
// not computed. dlogits may be the logits. When these are f32, dlogits may be bf16, so that products can read it.
QUIRE_OP(cross_entropy, const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
         const Tensor& mask, const Tensor& factor, const CrossEntropyTerms& terms);
// total (f64 [1]) = sum of in, in a fixed order.
QUIRE_OP(sum_all, const Tensor& total, const Tensor& in);

}  // namespace quire::ops
