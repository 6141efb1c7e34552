// The configuration of a layer's mixer: positions, what a token sees, what is carried.
#pragma once

#include <cmath>

#include "core/config/config.h"
#include "core/dtype.h"
#include "layers/mechanism_registry.h"

namespace quire {

enum class Position { t5, xl, rope, alibi, none };
enum class CacheKind { none, hidden, kv };
enum class RopeLayout { half, interleaved };
enum class StateType { automatic, f32, bf16 };
enum class AttentionImplementation { own, cudnn, automatic };

template <>
struct EnumNames<Position> {
  static constexpr auto value = std::to_array<std::pair<Position, std::string_view>>({{Position::t5, "t5"},
                                                                                      {Position::xl, "xl"},
                                                                                      {Position::rope, "rope"},
                                                                                      {Position::alibi, "alibi"},
                                                                                      {Position::none, "none"}});
};
template <>
struct EnumNames<CacheKind> {
  static constexpr auto value = std::to_array<std::pair<CacheKind, std::string_view>>(
      {{CacheKind::none, "none"}, {CacheKind::hidden, "hidden"}, {CacheKind::kv, "kv"}});
};
template <>
struct EnumNames<RopeLayout> {
  static constexpr auto value = std::to_array<std::pair<RopeLayout, std::string_view>>(
      {{RopeLayout::half, "half"}, {RopeLayout::interleaved, "interleaved"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"features i and i + dims/2 are a pair (LLaMA, GPT-NeoX)", "features 2i and 2i + 1 are a pair (RoFormer)"});
};
template <>
struct EnumNames<StateType> {
  static constexpr auto value = std::to_array<std::pair<StateType, std::string_view>>(
      {{StateType::automatic, "auto"}, {StateType::f32, "f32"}, {StateType::bf16, "bf16"}});
};

template <>
struct EnumNames<AttentionImplementation> {
  static constexpr auto value = std::to_array<std::pair<AttentionImplementation, std::string_view>>(
      {{AttentionImplementation::own, "own"},
       {AttentionImplementation::cudnn, "cudnn"},
       {AttentionImplementation::automatic, "auto"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the kernels of this program", "those of cuDNN; a run that it cannot compute is refused at the start",
       "on a GPU whichever is faster, measured when the run begins and kept when it goes on; own where cuDNN cannot"});
};

// The type that is stored; without a value the one that the model computes in.
inline std::optional<DType> stored_type(StateType type) {
  if (type == StateType::automatic) return std::nullopt;
  return type == StateType::bf16 ? DType::bf16 : DType::f32;
}

struct CacheConfig {
  CacheKind kind = CacheKind::none;
  std::optional<int64_t> length;
  StateType dtype = StateType::automatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "what a layer carries from one subsequence of a document to the next: its input "
                     "states (Transformer-XL) or its keys and values",
             .at_evaluation = true});
    v.field("length", length,
            {.help = "number of tokens that a layer carries; none: the window",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true,
             .sizes_state = true,
             .at_zero = "for no cache write cache={kind: none}"});
    v.field("dtype", dtype,
            {.help = "number type of the cache; auto: the precision of the run. bf16 needs half the memory and keeps 8 "
                     "significant bits",
             .at_evaluation = true,
             .sizes_state = true});
  }
};

struct XlConfig {
  bool share_biases = true;
  int64_t clamp = 0;
  double base = 10000;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("share_biases", share_biases, {.help = "one pair of biases u, v for all layers instead of one per layer"});
    v.field("clamp", clamp,
            {.help = "larger distances are treated as this one; 0: no limit",
             .unit = "tokens",
             .min = 0,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("base", base, {.help = "sinusoid n advances by base^(-2n/E) per token", .min = 1, .min_exclusive = true});
  }
};

struct T5Config {
  int64_t buckets = 32;
  int64_t max_distance = 128;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("buckets", buckets, {.help = "number of learned biases per head and layer", .min = 2, .max = 4096});
    v.field(
        "max_distance", max_distance,
        {.help = "this distance and larger ones share the last bucket", .unit = "tokens", .min = 2, .max = 1 << 24});
  }
};

struct RopeConfig {
  double base = 10000;
  std::optional<int64_t> dims;
  RopeLayout layout = RopeLayout::half;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("base", base, {.help = "pair i of P is rotated by base^(-i/P) per token", .min = 1, .min_exclusive = true});
    v.field("dims", dims,
            {.help = "number of features of a head that are rotated, the first ones; none: all",
             .unit = "features",
             .min = 2,
             .max = 1 << 20});
    v.field("layout", layout, {.help = "which features of a head are rotated together"});
  }
};

struct AttentionConfig {
  KindConfig mechanism{Role::mixer};
  std::optional<int64_t> window;
  bool same_length = false;
  bool attend_self = true;
  bool qk_norm = false;
  bool mask_empty_cache = true;
  AttentionImplementation implementation = AttentionImplementation::own;
  double token_shift = 0;
  CacheConfig cache;
  XlConfig xl;
  T5Config t5;
  RopeConfig rope;

  // Tokens a layer carries. Meaningful when a cache is on and the configuration was checked.
  int64_t cache_length() const { return cache.kind == CacheKind::none ? 0 : cache.length.value_or(window.value_or(0)); }
  // Features of the input that are those of the token before.
  int64_t shifted_features(int64_t width) const {
    return static_cast<int64_t>(std::llround(token_shift * static_cast<double>(width)));
  }
  // The largest distance a token sees; without a value there is no limit. Transformer-XL's same_length counts the token
  // itself.
  std::optional<int64_t> reach() const { return same_length ? std::optional(cache_length() - 1) : window; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.kinds("kind", RegisteredKinds(mechanism), KindOptions::in_section,
            {.help = "kind of mixer; its options stand in a section of that name"});
    v.field("window", window,
            {.help = "largest distance between a token and a key that it sees; none: everything in cache and "
                     "subsequence. Some kinds of mixer say in their options what none means for them",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("same_length", same_length,
            {.help = "every token sees cache.length keys, itself included (Transformer-XL's same_length). This equals "
                     "window: cache.length - 1 and cannot be combined with a window",
             .at_evaluation = true});
    v.field("attend_self", attend_self, {.help = "a token also sees itself"});
    v.field("qk_norm", qk_norm,
            {.help = "queries and keys are normalised to length 1 before rotation, and the logits, biases by distance "
                     "included, are multiplied by a learned scale per head"});
    v.field("mask_empty_cache", mask_empty_cache,
            {.help = "empty slots of a key/value cache are not seen; false: they count as zero keys, as published for "
                     "the Memorizing Transformer"});
    v.field("implementation", implementation,
            {.help = "which kernels compute the attention of training steps. cuDNN's take bf16, heads of up to 256 "
                     "features (128 before Hopper) and position: rope or none, without attention dropout; with "
                     "data.pack: concat they need compute capability 9 or 10. Evaluation and generation use own"});
    v.field("token_shift", token_shift,
            {.help = "share of the mixer's input features that are those of the token before (RWKV's token shift, with "
                     "fixed shares). With 0.5 a layer learns much sooner to look up what followed an earlier "
                     "occurrence of a token, which small models otherwise learn late or never",
             .min = 0,
             .max = 1});
    v.section("cache", cache, "what is carried along a document");
    v.section("xl", xl, "options of position: xl");
    v.section("t5", t5, "options of position: t5");
    v.section("rope", rope, "options of position: rope");
  }
};

// What model.layer_overrides may change for some layers.
struct LayerConfig {
  Position position = Position::xl;
  AttentionConfig attention;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("position", position, {.help = "position information"});
    v.section("attention", attention, "the mixer");
  }
};

}  // namespace quire
