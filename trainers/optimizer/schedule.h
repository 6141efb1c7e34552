// The learning rate as a function of the step.
#pragma once

#include <array>
#include <cstdint>

#include "core/config/config.h"

namespace quire {

enum class ScheduleKind { constant, linear, cosine, inverse_sqrt, wsd };
enum class DecayShape { linear, one_minus_sqrt };

template <>
struct EnumNames<ScheduleKind> {
  static constexpr auto value =
      std::to_array<std::pair<ScheduleKind, std::string_view>>({{ScheduleKind::constant, "constant"},
                                                                {ScheduleKind::linear, "linear"},
                                                                {ScheduleKind::cosine, "cosine"},
                                                                {ScheduleKind::inverse_sqrt, "inverse_sqrt"},
                                                                {ScheduleKind::wsd, "wsd"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"stays at the peak", "a straight line down to final", "a half cosine down to final",
       "falls with the root of the step: peak * sqrt(warmup / step)",
       "stays at the peak (stable), then falls to final over the last `decay` steps"});
};
template <>
struct EnumNames<DecayShape> {
  static constexpr auto value = std::to_array<std::pair<DecayShape, std::string_view>>(
      {{DecayShape::linear, "linear"}, {DecayShape::one_minus_sqrt, "one_minus_sqrt"}});
  static constexpr auto help = std::to_array<std::string_view>({"1 - p", "1 - sqrt(p), which falls faster at first"});
};

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::cosine;
  int64_t warmup = 200;
  int64_t steps = 2000;
  double final = 0.1;
  std::optional<int64_t> decay;
  DecayShape decay_shape = DecayShape::linear;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "course of the learning rate after the warm-up"});
    // These keys come after `kind`, because their meaning depends on it.
    const bool ends = kind != ScheduleKind::constant && kind != ScheduleKind::inverse_sqrt;
    const std::string_view wsd_only = kind == ScheduleKind::wsd ? "" : "only schedule.kind wsd has it";
    v.field("warmup", warmup,
            {.help = "steps in which the learning rate rises linearly to its peak",
             .unit = "steps",
             .min = 0,
             .meant = "warmup_steps warmup_iters num_warmup_steps"});
    v.field(
        "steps", steps,
        {.help = "number of optimizer steps of the run",
         .unit = "steps",
         .min = 1,
         .resumable = true,
         .meant =
             "epochs num_epochs num_train_epochs max_steps train_steps num_steps total_steps max_iters iterations"});
    v.field("final", final,
            {.help = "learning rate at the end, as a share of the peak (linear, cosine, wsd)",
             .min = 0,
             .max = 1,
             .inapplicable = ends ? "" : "schedule.kind constant and inverse_sqrt have no final rate"});
    v.field("decay", decay,
            {.help = "steps of the decay at the end of the run (required with wsd)",
             .unit = "steps",
             .min = 1,
             .resumable = true,
             .inapplicable = wsd_only});
    v.field(
        "decay_shape", decay_shape,
        {.help = "shape of the decay, with p rising from 0 to 1 (wsd)", .resumable = true, .inapplicable = wsd_only});
  }
  void check(ConfigChecker& c) const {
    check_steps(c);
    c.require(kind != ScheduleKind::wsd || decay.has_value(), "decay",
              "wsd needs the length of its decay, for example a fifth of schedule.steps");
  }
  // Explains the most common first mistake: a trial of ten steps with the warm-up of a long run.
  void check_steps(ConfigChecker& c) const;
};

// The rate of step 1, 2, ... It is peak * step / warmup up to the warm-up's end, where all kinds are at the peak, and
// with p = (step - warmup) / (steps - warmup) from there on
//   constant      peak
//   linear        peak * (final + (1 - final) (1 - p))
//   cosine        peak * (final + (1 - final) (1 + cos(pi p)) / 2)       Loshchilov and Hutter 2017, without restarts
//   inverse_sqrt  peak * sqrt(max(warmup, 1) / step)                     Vaswani et al. 2017, section 5.3
//   wsd           peak, then with p = (step - steps + decay) / decay     Hu et al. 2024 (MiniCPM), section 4
//                 peak * (final + (1 - final) (1 - p))                     linear
//                 peak * (final + (1 - final) (1 - sqrt(p)))               one_minus_sqrt: Haegele et al. 2024
// Beyond `steps` those that end stay at final * peak.
double learning_rate(const ScheduleConfig& config, double peak, int64_t step);

}  // namespace quire
