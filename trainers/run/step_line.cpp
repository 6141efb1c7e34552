#include "trainers/run/step_line.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/check.h"

namespace quire {

std::optional<double> bits_per_byte_of_nat(const Split& split, bool score_first_token) {
  const SplitTotals& totals = split.totals();
  if (split.marked() || totals.bytes == 0) return std::nullopt;
  const int64_t targets = totals.tokens + (score_first_token ? split.documents() : 0);
  return static_cast<double>(targets) / static_cast<double>(totals.bytes) / std::numbers::ln2;
}

void StepLine::add(const StepResult& result, double seconds) {
  constexpr double kOld = 0.9;
  constexpr size_t kLosses = 100;
  const bool is_first = seconds_ == 0;
  seconds_ = is_first ? seconds : kOld * seconds_ + (1 - kOld) * seconds;
  targets_ = is_first ? static_cast<double>(result.targets)
                      : kOld * targets_ + (1 - kOld) * static_cast<double>(result.targets);
  if (!result.read) return;
  losses_.push_back(result.loss);
  if (losses_.size() > kLosses) losses_.pop_front();
}

std::string StepLine::in_bits(double loss, int digits) const {
  return bits_ ? fmt::format(" ({:.{}f} bits/byte)", loss * *bits_, digits) : "";
}

std::string StepLine::text() const {
  std::string text;
  if (!losses_.empty()) text = fmt::format("loss {:.3f}{}", losses_.back(), in_bits(losses_.back(), 2));
  if (seconds_ > 0) text += fmt::format("{}{:.0f} tokens/s", text.empty() ? "" : ", ", targets_ / seconds_);
  return text;
}

std::string StepLine::recent_losses() const {
  if (losses_.empty()) return "";
  const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(losses_.size());
  return fmt::format(", the last {} training steps {:.4f}{}", losses_.size(), mean, in_bits(mean, 4));
}

}  // namespace quire
