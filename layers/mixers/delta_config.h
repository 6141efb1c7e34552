// The configuration of the gated delta rule.
#pragma once

#include <fmt/format.h>

#include <optional>

#include "core/config/config.h"

namespace quire {

enum class DeltaGates { scalar, channel, gdn2 };
enum class DeltaRule { delta, additive };
enum class DeltaDecayKind { softplus, lower, lower_free };
enum class DeltaOutputGate { automatic, silu, sigmoid, none };

template <>
struct EnumNames<DeltaGates> {
  static constexpr auto value = std::to_array<std::pair<DeltaGates, std::string_view>>(
      {{DeltaGates::scalar, "scalar"}, {DeltaGates::channel, "channel"}, {DeltaGates::gdn2, "gdn2"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a decay and a rate per head (Gated DeltaNet; with rule: additive the core of Mamba-2)",
       "a decay per feature of a key and a rate per head (Kimi Delta Attention; with rule: additive that of GLA)",
       "a decay and an erase rate per feature of a key, a write rate per feature of a value (Gated DeltaNet-2)"});
};
template <>
struct EnumNames<DeltaRule> {
  static constexpr auto value = std::to_array<std::pair<DeltaRule, std::string_view>>(
      {{DeltaRule::delta, "delta"}, {DeltaRule::additive, "additive"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"of each value, what the state already recalls for its key is left out", "values are added as they are"});
};
template <>
struct EnumNames<DeltaDecayKind> {
  static constexpr auto value =
      std::to_array<std::pair<DeltaDecayKind, std::string_view>>({{DeltaDecayKind::softplus, "softplus"},
                                                                  {DeltaDecayKind::lower, "lower"},
                                                                  {DeltaDecayKind::lower_free, "lower_free"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"-exp(log_rate) softplus(a + bias): a token may forget everything",
                                       "bound sigmoid(exp(log_rate) (a + bias)): a token keeps at least exp(bound)",
                                       "the same without a learned rate"});
};
template <>
struct EnumNames<DeltaOutputGate> {
  static constexpr auto value =
      std::to_array<std::pair<DeltaOutputGate, std::string_view>>({{DeltaOutputGate::automatic, "auto"},
                                                                   {DeltaOutputGate::silu, "silu"},
                                                                   {DeltaOutputGate::sigmoid, "sigmoid"},
                                                                   {DeltaOutputGate::none, "none"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"silu with gates: scalar, sigmoid with the others, as published",
       "the output of a head times silu of a projection of the token", "the same with a sigmoid", "no gate"});
};

struct DeltaDecayConfig {
  DeltaDecayKind kind = DeltaDecayKind::softplus;
  double bound = -5;
  double dt_min = 1e-3;
  double dt_max = 0.1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "form of the log decay of a token"});
    v.field("bound", bound,
            {.help = "the log decay of a token is never below this",
             .min = -80,
             .max = -0.01,
             .meant = "lower_bound",
             .inapplicable = kind == DeltaDecayKind::softplus ? "decay.kind is softplus" : ""});
    v.field("dt_min", dt_min,
            {.help = "the initial step sizes are drawn between dt_min and dt_max, evenly in their logarithm; a head "
                     "forgets half in about ln 2 / (step size * rate) tokens, and rates begin up to 16. With 1e-3, as "
                     "published, few heads remember 100 tokens at the start; 1e-5 reaches 10000",
             .min = 1e-8,
             .max = 10});
    v.field("dt_max", dt_max, {.help = "the largest initial step size", .min = 1e-8, .max = 10});
  }
  void check(ConfigChecker& c) const {
    c.require(dt_min <= dt_max, "dt_min", fmt::format("{} is above dt_max, {}", dt_min, dt_max));
  }
};

struct DeltaConfig {
  DeltaGates gates = DeltaGates::scalar;
  DeltaRule rule = DeltaRule::delta;
  std::optional<int64_t> heads;
  std::optional<int64_t> key_heads;
  std::optional<int64_t> key_size;
  std::optional<int64_t> value_size;
  int64_t conv = 4;
  bool conv_bias = false;
  bool qk_norm = true;
  bool negative = false;
  std::optional<int64_t> rank;
  DeltaDecayConfig decay;
  DeltaOutputGate output_gate = DeltaOutputGate::automatic;
  double norm_eps = 1e-6;

  bool erases() const { return rule == DeltaRule::delta; }
  bool decays_by_feature() const { return gates != DeltaGates::scalar; }
  DeltaOutputGate output() const {
    if (output_gate != DeltaOutputGate::automatic) return output_gate;
    return gates == DeltaGates::scalar ? DeltaOutputGate::silu : DeltaOutputGate::sigmoid;
  }

  template <class Visitor>
  void fields(Visitor& v) {
    const FieldInfo size{.unit = "features", .min = 1, .max = 4096};
    const auto with = [](FieldInfo info, std::string_view help) {
      info.help = help;
      return info;
    };
    v.field("gates", gates, {.help = "what a decay and a rate belong to"});
    v.field("rule", rule, {.help = "what a token adds to the state"});
    v.field("heads", heads,
            {.help = "number of heads, each with a state of its own; none: model.heads",
             .min = 1,
             .max = 4096,
             .meant = "num_v_heads"});
    v.field("key_heads", key_heads,
            {.help = "number of heads of queries and keys, which several heads may share; none: as many as heads",
             .min = 1,
             .max = 4096});
    v.field("key_size", key_size, with(size, "size of the queries and keys of a head; none: that of model.head_size"));
    v.field("value_size", value_size, with(size, "size of the values of a head; none: key_size"));
    v.field("conv", conv,
            {.help = "tokens that the short convolution of queries, keys and values spans; 0: none, silu alone",
             .unit = "tokens",
             .min = 0,
             .max = 64,
             .meant = "conv_size d_conv kernel_size"});
    v.field("conv_bias", conv_bias,
            {.help = "the convolutions have biases", .inapplicable = conv > 0 ? "" : "conv is 0"});
    v.field("qk_norm", qk_norm,
            {.help = "queries and keys are divided by their lengths; without it the state can grow without bound"});
    v.field("negative", negative,
            {.help = "erase rates reach 2 instead of 1, so that the state can change its sign along a key",
             .meant = "allow_neg_eigval neg_eig",
             .inapplicable = rule == DeltaRule::delta ? "" : "rule: additive erases nothing"});
    v.field("rank", rank,
            {.help = "inner size of the two projections that make the decay, and of the two that make the output gate; "
                     "none: value_size",
             .unit = "features",
             .min = 1,
             .max = 4096,
             .inapplicable = gates == DeltaGates::scalar ? "gates: scalar has no such projections" : ""});
    v.section("decay", decay, "how much of the state a token keeps");
    v.field("output_gate", output_gate, {.help = "gate of the output of a head, behind its normalisation"});
    v.field("norm_eps", norm_eps,
            {.help = "number that is added to the mean square of the output of a head, which is small at the start: "
                     "with 1e-5, as published, the normalisation does little there",
             .min = 0,
             .min_exclusive = true});
  }
  void check(ConfigChecker& c) const {
    c.require(!heads || !key_heads || *heads % *key_heads == 0, "key_heads",
              fmt::format("{} heads cannot share {} heads of keys evenly", heads.value_or(0), key_heads.value_or(0)));
  }
};

}  // namespace quire
