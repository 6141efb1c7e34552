// Decides whether the optimizer applies a step. This happens on the device of the gradients, so that no step waits for
// the host, and by the same rule on all devices.
#pragma once

namespace quire {

namespace ops {

struct StepOutcome {
  double targets = 0;  // counted targets of the whole batch
  double clip = 0;     // largest norm of a gradient; 0 is off
  // a step fails unless the norm after clipping is below this: larger gradients overflow the moments
  double largest_norm = 0;
  double step = 0;      // counts from 1
  bool sticky = false;  // after a failed step nothing is applied until the host has read the outcome
};

}  // namespace ops

// Entries of an outcome, f64 [6]. kGradientScale and kApply, side by side, are the control of kernels/optimizer.h.
namespace outcome {
inline constexpr int kLoss = 0;  // mean over the targets
inline constexpr int kGradientNorm = 1;
inline constexpr int kGradientScale = 2;  // clipping factor
inline constexpr int kApply = 3;          // 1 or 0
inline constexpr int kFirstFailed = 4;    // the step that failed first, or 0; kept when sticky
inline constexpr int kEntries = 6;
}  // namespace outcome

constexpr void judge_step(double* entries, double loss_sum, double gradient_norm, const ops::StepOutcome& options) {
  // The entries of the failed step remain for the host to read.
  if (options.sticky && entries[outcome::kFirstFailed] != 0) {
    entries[outcome::kApply] = 0;
    return;
  }
  const double loss = options.targets > 0 ? loss_sum / options.targets : 0;
  // The largest factor that keeps the norm at or below the limit.
  const double scale = options.clip > 0 && gradient_norm > options.clip ? options.clip / gradient_norm : 1;
  // For NaN both comparisons are false.
  const bool succeeded = loss - loss == 0 && gradient_norm * scale < options.largest_norm;
  if (options.sticky && !succeeded) entries[outcome::kFirstFailed] = options.step;
  entries[outcome::kLoss] = loss;
  entries[outcome::kGradientNorm] = gradient_norm;
  entries[outcome::kGradientScale] = scale;
  entries[outcome::kApply] = succeeded ? 1 : 0;
}

}  // namespace quire
