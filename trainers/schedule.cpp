#include "trainers/schedule.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace quire {

double learning_rate(const ScheduleConfig& config, double peak, int64_t step) {
  QUIRE_CHECK(step >= 1, "learning_rate: steps count from 1, got {}", step);
  if (step < config.warmup) return peak * static_cast<double>(step) / static_cast<double>(config.warmup);
  if (config.kind == ScheduleKind::constant || step == config.warmup) return peak;
  if (step >= config.steps) return peak * config.final;
  const double progress = static_cast<double>(step - config.warmup) / static_cast<double>(config.steps - config.warmup);
  return peak * (config.final + (1.0 - config.final) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace quire
