#include "trainers/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace quire {

namespace {

// Returns the remaining fraction of the way from the peak to the final rate at a step after the warm-up.
double remaining(const ScheduleConfig& config, int64_t step) {
  const bool is_wsd = config.kind == ScheduleKind::wsd;
  const int64_t begin = is_wsd ? config.steps - config.decay.value_or(0) : config.warmup;
  if (step <= begin) return 1;
  if (step >= config.steps) return 0;
  const double progress = static_cast<double>(step - begin) / static_cast<double>(config.steps - begin);
  if (config.kind == ScheduleKind::cosine) return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  if (is_wsd && config.decay_shape == DecayShape::one_minus_sqrt) return 1.0 - std::sqrt(progress);
  return 1.0 - progress;
}

}  // namespace

void ScheduleConfig::check_steps(ConfigChecker& c) const {
  const int64_t shorter = std::min(warmup, steps / 10);
  if (!decay) {
    c.require(
        warmup <= steps, "steps",
        fmt::format("{} steps end before the warm-up of {} does; schedule.warmup={} would do, or schedule.steps={} "
                    "and more",
                    steps, warmup, shorter, warmup));
    return;
  }
  c.require(
      warmup + *decay <= steps, "steps",
      fmt::format("{} steps are fewer than the {} of warm-up and the {} of decay together; schedule.warmup={} "
                  "schedule.decay={} would do, or schedule.steps={} and more",
                  steps, warmup, *decay, shorter, std::min(*decay, std::max<int64_t>(1, steps / 5)), warmup + *decay));
}

double learning_rate(const ScheduleConfig& config, double peak, int64_t step) {
  QUIRE_CHECK(step >= 1, "learning_rate: steps count from 1, got {}", step);
  if (step < config.warmup) return peak * static_cast<double>(step) / static_cast<double>(config.warmup);
  if (config.kind == ScheduleKind::constant) return peak;
  if (config.kind == ScheduleKind::inverse_sqrt) {
    return peak * std::sqrt(static_cast<double>(std::max<int64_t>(config.warmup, 1)) / static_cast<double>(step));
  }
  return peak * (config.final + (1.0 - config.final) * remaining(config, step));
}

}  // namespace quire
