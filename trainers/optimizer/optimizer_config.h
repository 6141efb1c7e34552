// The configuration of the optimizer: its kind, parameter groups and the average of the weights.
#pragma once

#include "core/config/config.h"

namespace quire {

enum class OptimizerKind { adamw, adafactor };

template <>
struct EnumNames<OptimizerKind> {
  static constexpr auto value = std::to_array<std::pair<OptimizerKind, std::string_view>>(
      {{OptimizerKind::adamw, "adamw"}, {OptimizerKind::adafactor, "adafactor"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"two moments per weight (Loshchilov and Hutter 2019)",
       "second moments of a matrix as one number per row and per column (Shazeer and Stern 2018)"});
};

// Parameters whose dotted names match, and what is different for them.
struct ParameterGroupConfig {
  std::vector<std::string> match;
  std::optional<double> weight_decay;
  double lr_scale = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "match", match,
        {.help = "globs on parameter names, as in [\"embedding.*\", \"*.norm.scale\"]; the first group that matches "
                 "counts",
         .required = true});
    v.field("weight_decay", weight_decay,
            {.help = "in place of optimizer.weight_decay, also for gains and biases; none leaves it as it is",
             .min = 0,
             .resumable = true});
    v.field("lr_scale", lr_scale,
            {.help = "times the learning rate; 0 keeps the initial values", .min = 0, .max = 1e6, .resumable = true});
  }
  void check(ConfigChecker& c) const { c.require(!match.empty(), "match", "needs at least one glob"); }
};

struct EmaConfig {
  std::optional<double> decay;
  bool evaluate = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("decay", decay,
            {.help = "share of the average that a step keeps, at most (1 + n) / (10 + n) after n updates; none is off",
             .min = 0,
             .max = 0.99999999,
             .min_exclusive = true});
    v.field("evaluate", evaluate,
            {.help = "evaluate and generate with the average unless the command says otherwise",
             .resumable = true,
             .inapplicable = decay ? "" : "optimizer.ema.decay is none"});
  }
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::adamw;
  bool relative_step = false;
  double lr = 5e-4;
  std::vector<double> betas{0.9, 0.95};
  double eps = 1e-8;
  std::optional<double> momentum;
  double decay_exponent = 0.8;
  double eps1 = 1e-30;
  double update_clip = 1.0;
  bool parameter_scale = false;
  double eps2 = 1e-3;
  double weight_decay = 0.1;
  bool decay_with_rate = true;
  double clip = 1.0;
  std::vector<ParameterGroupConfig> groups;
  EmaConfig ema;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "how a gradient becomes an update"});
    // Only now, when the kind has been read.
    const std::string_view adamw = kind == OptimizerKind::adamw ? "" : "only optimizer.kind adamw has it";
    const std::string_view adafactor = kind == OptimizerKind::adafactor ? "" : "only optimizer.kind adafactor has it";
    v.field("relative_step", relative_step,
            {.help = "the peak learning rate is min(0.01, 1 / sqrt(updates)) (adafactor)", .inapplicable = adafactor});
    v.field("lr", lr,
            {.help = "peak learning rate",
             .min = 0,
             .resumable = true,
             .inapplicable = relative_step ? "optimizer.relative_step sets the learning rate" : ""});
    v.field("betas", betas,
            {.help = "decay of the two moments (adamw)", .min = 0, .max = 0.999999, .inapplicable = adamw});
    v.field("eps", eps,
            {.help = "added to the root of the second moment (adamw)",
             .min = 0,
             .min_exclusive = true,
             .inapplicable = adamw});
    v.field("momentum", momentum,
            {.help = "decay of a mean of the updates; none is without one (adafactor)",
             .min = 0,
             .max = 0.999999,
             .min_exclusive = true,
             .inapplicable = adafactor});
    v.field("decay_exponent", decay_exponent,
            {.help = "the n-th update keeps the share 1 - n^-decay_exponent of the second moment (adafactor)",
             .min = 0,
             .max = 4,
             .min_exclusive = true,
             .inapplicable = adafactor});
    v.field("eps1", eps1,
            {.help = "added to the squared gradient (adafactor)", .min = 1e-36, .max = 1, .inapplicable = adafactor});
    v.field("update_clip", update_clip,
            {.help = "largest root mean square of a parameter's update before the learning rate (adafactor)",
             .min = 0,
             .min_exclusive = true,
             .resumable = true,
             .inapplicable = adafactor});
    v.field(
        "parameter_scale", parameter_scale,
        {.help = "times the parameter's root mean square (adafactor)", .resumable = true, .inapplicable = adafactor});
    v.field("eps2", eps2,
            {.help = "smallest root mean square that parameter_scale takes (adafactor)",
             .min = 0,
             .min_exclusive = true,
             .resumable = true,
             .inapplicable = !adafactor.empty() ? adafactor
                             : parameter_scale  ? ""
                                                : "optimizer.parameter_scale is false"});
    v.field("weight_decay", weight_decay,
            {.help = "of matrices, times the learning rate, per step; not scaled by moments; gains, biases and "
                     "position terms do not decay",
             .min = 0,
             .resumable = true});
    v.field("decay_with_rate", decay_with_rate,
            {.help = "false: weight_decay is the share of a matrix that goes in each step, whatever the learning rate "
                     "(Lingle 2024); times lr_scale of its group",
             .resumable = true});
    v.field("clip", clip, {.help = "largest norm of the whole gradient; 0 is off", .min = 0, .resumable = true});
    v.list("groups", groups, "parameters with another weight decay or learning rate");
    v.section("ema", ema, "exponential moving average of the weights");
  }
  void check(ConfigChecker& c) const { c.require(betas.size() == 2, "betas", "needs two numbers, as in [0.9, 0.95]"); }
};

}  // namespace quire
