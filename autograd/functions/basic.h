// Linear maps, scales, dropout and sums that are losses.
#pragma once

#include "autograd/functions/pointwise.h"
#include "autograd/functions/views.h"
#include "kernels/elementwise.h"

namespace quire {

Variable scale(Tape& tape, const Variable& x, double factor);
// x + factor[0] * y; factor [1], wide; y is constant.
Variable add_scaled(Tape& tape, const Variable& x, const Tensor& y, const Variable& factor);
// x [.., N] + bias [N].
Variable add_bias(Tape& tape, const Variable& x, const Variable& bias);

// Returns y [.., N] = x [.., K] W^T + b, or residual + y, in one pass; W [N, K], b [N] may be undefined.
Variable linear(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias = {},
                const Variable& residual = {});
// y = activation(x W^T + b), as one operation.
Variable linear_activation(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias,
                           ops::Activation kind);

struct LinearWeights {
  Variable weight;  // [N, K]
  Variable bias;    // [N], or undefined
};
// Returns linear(activation(linear(x, up)), down, residual) as one operation: the gradient of the hidden features is
// multiplied by the activation's derivative within a product, and is never stored.
Variable feed_forward(Tape& tape, const Variable& x, const LinearWeights& up, ops::Activation kind,
                      const LinearWeights& down, const Variable& residual = {});

// Returns f64 [1]: the sum of x * weights. It is the loss of tests and golden cases.
Variable weighted_sum(Tape& tape, const Variable& x, const Tensor& weights);

// Returns x. When the backward pass reaches the result, it also adds the gradient of weight * loss (f64 [1]).
Variable with_loss(Tape& tape, const Variable& x, const Variable& loss, double weight);

// Returns value; x receives the gradient of the result, unchanged.
Variable with_gradient_to(Tape& tape, const Tensor& value, const Variable& x);

// Returns x [.., H, D] times |s_h|, s [H].
Variable scale_heads(Tape& tape, const Variable& x, const Variable& s);

// x [R, T, N]; the identity when the probability is 0. Where `residual` is defined, returns residual + dropout(x) in
// one pass.
Variable dropout(Tape& tape, const Variable& x, const Variable& residual, const ops::DropoutKey& key);

}  // namespace quire
