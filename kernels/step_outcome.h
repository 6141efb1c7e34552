// What became of a step, judged where the gradients are so that no step waits for the host. One rule for all devices.
#pragma once

namespace quire {

namespace ops {

struct StepOutcome {
  double targets = 0;       // counted targets of the whole batch
  double clip = 0;          // largest norm of a gradient; 0 is off
  double largest_norm = 0;  // moments hold a gradient whose norm, after clipping, is below
  double step = 0;          // counts from 1
  bool sticky = false;      // nothing is applied after a step that failed, until the host has seen it
};

}  // namespace ops

// Entries of an outcome, f64 [6]. Scale and apply, side by side, control the update (kernels/optimizer.h).
namespace outcome {
inline constexpr int kLoss = 0;  // mean over the targets
inline constexpr int kGradientNorm = 1;
inline constexpr int kGradientScale = 2;  // clipping factor
inline constexpr int kApply = 3;          // 1 or 0
inline constexpr int kFirstFailed = 4;    // step, or 0; kept when sticky
inline constexpr int kEntries = 6;
}  // namespace outcome

constexpr void judge_step(double* entries, double loss_sum, double gradient_norm, const ops::StepOutcome& options) {
  // What was wrong stays to be read.
  if (options.sticky && entries[outcome::kFirstFailed] != 0) {
    entries[outcome::kApply] = 0;
    return;
  }
  const double loss = options.targets > 0 ? loss_sum / options.targets : 0;
  // The largest factor that keeps the norm at or below the limit.
  const double scale = options.clip > 0 && gradient_norm > options.clip ? options.clip / gradient_norm : 1;
  // Both are false for NaN.
  const bool succeeded = loss - loss == 0 && gradient_norm * scale < options.largest_norm;
  if (options.sticky && !succeeded) entries[outcome::kFirstFailed] = options.step;
  entries[outcome::kLoss] = loss;
  entries[outcome::kGradientNorm] = gradient_norm;
  entries[outcome::kGradientScale] = scale;
  entries[outcome::kApply] = succeeded ? 1 : 0;
}

}  // namespace quire
