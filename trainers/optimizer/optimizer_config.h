// The configuration of the optimizer: its kind, parameter groups and the average of the weights.
#pragma once

#include "core/config/config.h"

namespace quire {

enum class OptimizerKind { adamw, adafactor, muon };

template <>
struct EnumNames<OptimizerKind> {
  static constexpr auto value = std::to_array<std::pair<OptimizerKind, std::string_view>>(
      {{OptimizerKind::adamw, "adamw"}, {OptimizerKind::adafactor, "adafactor"}, {OptimizerKind::muon, "muon"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"two moments per weight (Loshchilov and Hutter 2019)",
       "second moments of a matrix as one number per row and per column (Shazeer and Stern 2018)",
       "the momentum of a matrix is made orthogonal, and scaled so that lr and weight_decay of adamw carry over "
       "(Jordan "
       "et al. 2024, Liu et al. 2025); adamw updates embeddings, the projection to the vocabulary, gains and biases"});
};

// The parameters whose dotted names match, and the settings that differ for them.
struct ParameterGroupConfig {
  std::vector<std::string> match;
  std::optional<double> weight_decay;
  double lr_scale = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("match", match,
            {.help = "globs of parameter names, as in [\"embedding.*\", \"*norm.weight\"]; a parameter belongs to the "
                     "first group that matches",
             .required = true});
    v.field("weight_decay", weight_decay,
            {.help = "weight decay of these parameters, gains and biases included; none: as in optimizer.weight_decay",
             .min = 0,
             .resumable = true});
    v.field("lr_scale", lr_scale,
            {.help = "the learning rate of these parameters is multiplied by this; 0 keeps their initial values",
             .min = 0,
             .max = 1e6,
             .resumable = true});
  }
  void check(ConfigChecker& c) const { c.require(!match.empty(), "match", "needs at least one glob"); }
};

struct EmaConfig {
  std::optional<double> decay;
  bool evaluate = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("decay", decay,
            {.help = "decay of an exponential moving average of the weights, at most (1 + n) / (10 + n) after n "
                     "updates; none: no average is kept",
             .min = 0,
             .max = 0.99999999,
             .min_exclusive = true});
    v.field("evaluate", evaluate,
            {.help = "evaluation and generation use the average of the weights unless the command says otherwise",
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
  bool nesterov = true;
  int64_t ns_steps = 5;
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
    v.field("kind", kind, {.help = "kind of optimizer"});
    // These keys come after `kind`, because their meaning depends on it.
    const bool is_adafactor = kind == OptimizerKind::adafactor, is_muon = kind == OptimizerKind::muon;
    const std::string_view adamw = is_adafactor ? "only optimizer.kind adamw and muon have it" : "";
    const std::string_view adafactor = is_adafactor ? "" : "only optimizer.kind adafactor has it";
    const std::string_view muon = is_muon ? "" : "only optimizer.kind muon has it";
    v.field("relative_step", relative_step,
            {.help = "the peak learning rate is min(0.01, 1 / sqrt(number of updates)) (adafactor)",
             .inapplicable = adafactor});
    v.field("lr", lr,
            {.help = "peak learning rate",
             .min = 0,
             .resumable = true,
             .meant = "learning_rate max_lr peak_lr",
             .inapplicable = relative_step ? "optimizer.relative_step sets the learning rate" : ""});
    v.field("betas", betas,
            {.help = "decay rates of the two moments (adamw, and what it updates beside muon)",
             .min = 0,
             .max = 0.999999,
             .inapplicable = adamw});
    v.field("eps", eps,
            {.help = "number that is added to the root of the second moment (adamw, muon)",
             .min = 0,
             .min_exclusive = true,
             .inapplicable = adamw});
    v.field("momentum", momentum,
            {.help = "decay rate of a moving average of the updates (adafactor; none: no such average), or of a sum of "
                     "the gradients (muon; none: 0.95)",
             .min = 0,
             .max = 0.999999,
             .min_exclusive = true,
             .inapplicable = is_adafactor || is_muon ? "" : "only optimizer.kind adafactor and muon have it"});
    v.field("nesterov", nesterov,
            {.help = "the gradient is added to the momentum once more, as if the step were already made (muon)",
             .inapplicable = muon});
    v.field("ns_steps", ns_steps,
            {.help = "number of Newton-Schulz steps that make a matrix orthogonal (muon)",
             .unit = "steps",
             .min = 1,
             .max = 20,
             .inapplicable = muon});
    v.field("decay_exponent", decay_exponent,
            {.help = "the n-th update keeps the share 1 - n^-decay_exponent of the second moment (adafactor)",
             .min = 0,
             .max = 4,
             .min_exclusive = true,
             .inapplicable = adafactor});
    v.field("eps1", eps1,
            {.help = "number that is added to the squared gradient (adafactor)",
             .min = 1e-36,
             .max = 1,
             .inapplicable = adafactor});
    v.field("update_clip", update_clip,
            {.help = "largest root mean square of a parameter's update before the learning rate (adafactor)",
             .min = 0,
             .min_exclusive = true,
             .resumable = true,
             .inapplicable = adafactor});
    v.field("parameter_scale", parameter_scale,
            {.help = "updates are multiplied by the root mean square of their parameter (adafactor)",
             .resumable = true,
             .inapplicable = adafactor});
    v.field("eps2", eps2,
            {.help = "smallest root mean square that parameter_scale multiplies by (adafactor)",
             .min = 0,
             .min_exclusive = true,
             .resumable = true,
             .inapplicable = !adafactor.empty() ? adafactor
                             : parameter_scale  ? ""
                                                : "optimizer.parameter_scale is false"});
    v.field("weight_decay", weight_decay,
            {.help = "each step subtracts this share, times the learning rate, of every matrix (decoupled weight "
                     "decay); gains, biases and position terms do not decay",
             .min = 0,
             .resumable = true});
    v.field(
        "decay_with_rate", decay_with_rate,
        {.help = "weight decay is multiplied by the learning rate; false: only by lr_scale of the group (Lingle 2024)",
         .resumable = true});
    v.field("clip", clip,
            {.help = "a gradient with a larger norm is scaled down to this norm; 0: no clipping",
             .min = 0,
             .resumable = true,
             .meant = "grad_clip max_grad_norm gradient_clip_val clip_norm"});
    v.list("groups", groups, "parameters with another weight decay or learning rate");
    v.section("ema", ema, "exponential moving average of the weights");
  }
  void check(ConfigChecker& c) const { c.require(betas.size() == 2, "betas", "needs two numbers, as in [0.9, 0.95]"); }
};

}  // namespace quire
