// Optimizer steps on flat arenas.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// total (f64 [1]) += sum of x^2, summed in f64 in a fixed order.
extern Op<void(const Tensor& total, const Tensor& x)> squared_norm;

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  // clipping factor
  int64_t step = 1;           // counts from 1: bias correction
};
// Loshchilov and Hutter 2019, decoupled decay: w -= lr * (m_hat / (sqrt(v_hat) + eps) + decay * w). All [N], in place.
extern Op<void(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const AdamW& options)> adamw;

}  // namespace quire::ops
