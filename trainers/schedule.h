// The learning rate as a function of the step.
#pragma once

#include <array>
#include <cstdint>

#include "core/config.h"

namespace quire {

enum class ScheduleKind { constant, cosine };
template <>
struct EnumNames<ScheduleKind> {
  static constexpr auto value = std::to_array<std::pair<ScheduleKind, std::string_view>>(
      {{ScheduleKind::constant, "constant"}, {ScheduleKind::cosine, "cosine"}});
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  int64_t warmup = 200;
  int64_t steps = 2000;
  double final = 0.1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "constant, or a half cosine down to final; both after the warm-up"});
    v.field("warmup", warmup, {.help = "linear rise to the peak learning rate", .unit = "steps", .min = 0});
    v.field("steps", steps, {.help = "length of the run", .unit = "steps", .min = 1, .resumable = true});
    v.field("final", final, {.help = "share of the peak learning rate at the end of the cosine", .min = 0, .max = 1});
  }
  void check(ConfigChecker& c) const { c.require(warmup <= steps, "warmup", "must not be above steps"); }
};

// The rate of step 1, 2, ...: warm-up reaches `peak` at step == warmup, the cosine reaches final * peak at `steps` and
// stays there.
double learning_rate(const ScheduleConfig& config, double peak, int64_t step);

}  // namespace quire
