#include "trainers/run/pace.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace quire {

std::string Pace::add(double seconds) {
  seconds_ += seconds;
  if (++steps_ < kSteps || seconds_ < window_seconds_) return "";
  const double per_step = seconds_ / static_cast<double>(steps_);
  const int64_t steps = steps_;
  const double window = seconds_;
  seconds_ = 0;
  steps_ = 0;
  if (windows_ < kFirst) {
    first_ = windows_ == 0 ? per_step : std::min(first_, per_step);
    ++windows_;
    return "";
  }
  const bool was_slow = std::exchange(slow_, per_step > (slow_ ? kFar / 2 : kFar) * first_);
  if (was_slow || !slow_) return "";
  return fmt::format(
      "a step took {:.3g} s over the last {} steps ({:.0f} s), {:.1f} times the {:.3g} s of the first minutes: look "
      "for "
      "other programs on the machine, for memory that is swapped out and for a processor that is throttled",
      per_step, steps, window, per_step / first_, first_);
}

}  // namespace quire
