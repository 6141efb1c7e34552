// The configuration of softmax attention: what a token sees, and what is carried.
#pragma once

#include <cmath>

#include "layers/pass/attention_call.h"
#include "layers/state/carry_config.h"

namespace quire {

enum class CarryKind { none, hidden, kv };
enum class ProjectionBias { none, qkv, all };
enum class RmsQkNorm { none, head, all };

template <>
struct EnumNames<CarryKind> {
  static constexpr auto value = std::to_array<std::pair<CarryKind, std::string_view>>(
      {{CarryKind::none, "none"}, {CarryKind::hidden, "hidden"}, {CarryKind::kv, "kv"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"nothing", "the input states of the layer (Transformer-XL)", "the keys and values of the layer"});
};

template <>
struct EnumNames<ProjectionBias> {
  static constexpr auto value = std::to_array<std::pair<ProjectionBias, std::string_view>>(
      {{ProjectionBias::none, "none"}, {ProjectionBias::qkv, "qkv"}, {ProjectionBias::all, "all"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"no projection", "those to queries, keys and values (Qwen2)", "the one behind attention too (GPT-2, GPT-NeoX)"});
};
template <>
struct EnumNames<RmsQkNorm> {
  static constexpr auto value = std::to_array<std::pair<RmsQkNorm, std::string_view>>(
      {{RmsQkNorm::none, "none"}, {RmsQkNorm::head, "head"}, {RmsQkNorm::all, "all"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"they are not normalised", "each head by itself, all heads with the same gain (Qwen3, Gemma 3)",
       "all heads of a token together, each feature with a gain of its own (OLMo 2)"});
};

struct SoftmaxCarry {
  CarryKind kind = CarryKind::none;
  std::optional<int64_t> length;
  StateType dtype = StateType::automatic;
  bool mask_empty = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "what a layer carries from one subsequence of a document to the next", .at_evaluation = true});
    v.field("length", length,
            {.help = "number of tokens that a layer carries; none: the window",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true,
             .sizes_state = true,
             .at_zero = "to carry nothing write carry={kind: none}"});
    v.field("dtype", dtype,
            {.help = "number type of what is carried; auto: the precision of the run. bf16 needs half the memory and "
                     "keeps 8 significant bits; int8 and fp8 are refused",
             .at_evaluation = true,
             .sizes_state = true});
    v.field("mask_empty", mask_empty,
            {.help = "slots of kind: kv that no token has filled yet are not seen; false: they count as zero keys, as "
                     "published for the Memorizing Transformer"});
  }
  void check(ConfigChecker& c) const {
    c.require(dtype != StateType::int8 && dtype != StateType::fp8, "dtype",
              "a cache is not stored as int8 or fp8; use auto, f32 or bf16");
  }
};

struct SoftmaxConfig {
  std::optional<int64_t> window;
  bool same_length = false;
  bool attend_self = true;
  ProjectionBias bias = ProjectionBias::none;
  bool qk_norm = false;
  RmsQkNorm rms_qk_norm = RmsQkNorm::none;
  std::optional<double> scale;
  AttentionImplementation implementation = AttentionImplementation::own;
  SoftmaxCarry carry;

  // Tokens a layer carries. Meaningful when the configuration was checked.
  int64_t carried() const { return carry.kind == CarryKind::none ? 0 : carry.length.value_or(window.value_or(0)); }
  // The largest distance a token sees; without a value there is no limit. Transformer-XL's same_length counts the token
  // itself.
  std::optional<int64_t> reach() const { return same_length ? std::optional(carried() - 1) : window; }

  // Returns the factor of products of queries and keys, without the learned scale of qk_norm.
  double scale_of_logits(int64_t head_size) const {
    if (qk_norm) return 1;
    return scale.value_or(1.0 / std::sqrt(static_cast<double>(head_size)));
  }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("window", window,
            {.help = "largest distance between a token and a key that it sees; none: everything in the subsequence and "
                     "what is carried",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("same_length", same_length,
            {.help = "every token sees carry.length keys, itself included (Transformer-XL's same_length). This equals "
                     "window: carry.length - 1 and cannot be combined with a window",
             .at_evaluation = true});
    v.field("attend_self", attend_self, {.help = "a token also sees itself"});
    v.field("bias", bias, {.help = "which projections have biases"});
    v.field("qk_norm", qk_norm,
            {.help = "queries and keys are normalised to length 1 before rotation, and the logits, biases by distance "
                     "included, are multiplied by a learned scale per head"});
    v.field("rms_qk_norm", rms_qk_norm,
            {.help = "queries and keys are normalised by RMSNorm with a learned gain before rotation; its eps is "
                     "model.norm.eps. It cannot be combined with qk_norm"});
    v.field("scale", scale,
            {.help = "products of queries and keys are multiplied by this; none: 1 / sqrt(head size). It cannot be "
                     "combined with qk_norm, which learns the scale",
             .min = 0,
             .min_exclusive = true});
    v.field("implementation", implementation,
            {.help = "which kernels compute the attention of training steps. cuDNN's take bf16, heads of up to 256 "
                     "features (128 before Hopper) and position.kind: rope or none, without attention dropout; with "
                     "data.pack: concat they need compute capability 9 or 10. Evaluation and generation use own"});
    v.section("carry", carry, "what is carried along a document");
  }
};

}  // namespace quire
