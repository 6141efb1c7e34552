#include "trainers/step/nonfinite.h"

#include <array>
#include <cmath>

#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"

namespace quire {

namespace {

// Marks the rows of a block in which the loss of a target is not finite.
void mark_nonfinite_rows(std::span<uint8_t> marks, const Tensor& nll) {
  const Tensor wide = nll.dtype() == DType::f64 ? nll : Tensor::empty(nll.shape(), DType::f64, nll.device());
  if (nll.dtype() != DType::f64) ops::convert(wide, nll);
  const std::vector<double> values = wide.to_vector<double>();
  const size_t length = values.size() / marks.size();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) marks[i / length] = 1;
  }
}

std::string describe_failure(int64_t step, double loss, double grad_norm) {
  return fmt::format("step {}: loss {} and gradient norm {} are not finite, or too large for the moments", step, loss,
                     grad_norm);
}

constexpr std::string_view kHint =
    "Resume from the last checkpoint with a lower optimizer.lr or a smaller optimizer.clip";

}  // namespace

void require_finite(const TrainingState& training) {
  const std::vector<double> judged = training.outcome.to_vector<double>();
  const auto failed = static_cast<int64_t>(judged[outcome::kFirstFailed]);
  if (failed == 0) return;
  training.outcome.zero();  // reported only once
  fail(ErrorKind::numerics, "{}; weights are those of step {}. {}",
       describe_failure(failed, judged[outcome::kLoss], judged[outcome::kGradientNorm]), failed - 1, kHint);
}

int64_t skip_step(TrainingState& training, const RunConfig& config, std::span<const BlockLosses> blocks, Ranks& ranks,
                  double loss, double grad_norm) {
  if (training.skips_in_a_row >= config.run.on_nonfinite.max_skips) {
    fail(ErrorKind::numerics, "{}, and so were the {} steps before it (run.on_nonfinite.max_skips). {}",
         describe_failure(training.step + 1, loss, grad_norm), training.skips_in_a_row, kHint);
  }
  std::vector<uint8_t> nonfinite_rows(static_cast<size_t>(training.state->rows()));
  for (const BlockLosses& block : blocks) {
    mark_nonfinite_rows(std::span(nonfinite_rows)
                            .subspan(static_cast<size_t>(block.begin), static_cast<size_t>(block.end - block.begin)),
                        block.nll);
  }
  training.state->commit(nonfinite_rows);
  std::array<double, 1> cleared{0};
  for (const uint8_t mark : nonfinite_rows) cleared[0] += mark;
  ranks.sum(cleared);
  ++training.skipped;
  ++training.skips_in_a_row;
  return static_cast<int64_t>(cleared[0]);
}

}  // namespace quire
