// Optimizer steps on flat arenas of f32 or f64 weights. control, f64 [2], lies on the device of the gradient, so that
// the host need not wait: control[0] is a factor for the gradient, and control[1] is 1 to apply the step or 0 to change
// not a single bit.
#pragma once

#include "kernels/op.h"
#include "kernels/step_outcome.h"

namespace quire::ops {

// total (f64 [1]) += sum of x^2, summed in f64 in a fixed order.
QUIRE_OP(squared_norm, const Tensor& total, const Tensor& x);
// Decides whether a step is applied (kernels/step_outcome.h). outcome f64 [6], loss_sum and squared_norm f64 [1].
QUIRE_OP(step_outcome, const Tensor& outcome, const Tensor& loss_sum, const Tensor& squared_norm,
         const StepOutcome& options);

struct AdamW {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double decay = 0;  // share of w subtracted in a step
  int64_t step = 1;  // counts from 1: bias correction
};
// Loshchilov and Hutter 2019, decoupled decay: w -= lr * m_hat / (sqrt(v_hat) + eps) + decay * w. All [N], in place.
QUIRE_OP(adamw, const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const Tensor& control,
         const AdamW& options);

struct Adafactor {
  double learning_rate = 0;
  double beta1 = 0;  // for the moving average of updates, when mean is defined
  double beta2 = 0;
  double eps1 = 1e-30;
  double eps2 = 1e-3;
  double update_clip = 1;
  bool parameter_scale = false;
  double decay = 0;  // share of w subtracted in a step
};
// Shazeer and Stern 2018, algorithms 4 (matrices) and 5 (vectors). With g the scaled gradient, means over an axis:
//   row_i    <- beta2 row_i + (1 - beta2) (mean_j g_ij^2 + eps1)
//   column_j <- beta2 column_j + (1 - beta2) (mean_i g_ij^2 + eps1)
//   u_ij = g_ij / sqrt(row_i column_j / mean(row)),  u <- u / max(1, RMS(u) / update_clip)
//   mean <- beta1 mean + (1 - beta1) u, and u <- mean, when mean is defined
//   w <- (1 - decay) w - learning_rate s u,  s = max(eps2, RMS(w)) with parameter_scale, else 1
// w, mean, gradient [n, m]; row [n], column [m]. Without column, row [n, m] holds the second moment of each weight.
QUIRE_OP(adafactor, const Tensor& w, const Tensor& row, const Tensor& column, const Tensor& mean,
         const Tensor& gradient, const Tensor& control, const Adafactor& options);

// Muon (Jordan et al. 2024), before and after the Newton-Schulz iteration (trainers/optimizer/newton_schulz.h). With g
// the scaled gradient: momentum <- beta momentum + g, direction = momentum, or g + beta momentum with nesterov. A step
// that is not applied has direction 0. All of one size.
QUIRE_OP(muon_direction, const Tensor& direction, const Tensor& momentum, const Tensor& gradient, const Tensor& control,
         double beta, bool nesterov);
// w <- (1 - decay) w - rate direction; both [N].
QUIRE_OP(muon_update, const Tensor& w, const Tensor& direction, const Tensor& control, double rate, double decay);
// x <- x / sqrt(squared_norm), f64 [1], or 0 where that is 0.
QUIRE_OP(divide_by_norm, const Tensor& x, const Tensor& squared_norm);

// average += (1 - keep) (w - average); both [N].
QUIRE_OP(moving_average, const Tensor& average, const Tensor& w, const Tensor& control, double keep);

}  // namespace quire::ops
