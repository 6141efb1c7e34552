// The configuration of a model: one section per part.
#pragma once

#include "core/config/config.h"
#include "core/dtype.h"
#include "layers/memory/memory_config.h"
#include "layers/mixers/vq_config.h"

namespace quire {

enum class NormKind { rms, rms_bias, layer };
enum class NormPlacement { pre, post };
enum class MlpKind { swiglu, gelu, relu, none };
enum class Position { t5, xl, rope, alibi, none };
enum class MixerKind { softmax, vq };
enum class CacheKind { none, hidden, kv };
enum class Recompute { none, blocks, attention, mlp };
enum class StateType { automatic, f32, bf16 };
enum class InitializationKind { normal, transformer_xl, fan_in };

template <>
struct EnumNames<NormKind> {
  static constexpr auto value = std::to_array<std::pair<NormKind, std::string_view>>(
      {{NormKind::rms, "rms"}, {NormKind::rms_bias, "rms_bias"}, {NormKind::layer, "layer"}});
};
template <>
struct EnumNames<NormPlacement> {
  static constexpr auto value = std::to_array<std::pair<NormPlacement, std::string_view>>(
      {{NormPlacement::pre, "pre"}, {NormPlacement::post, "post"}});
};
template <>
struct EnumNames<MlpKind> {
  static constexpr auto value = std::to_array<std::pair<MlpKind, std::string_view>>(
      {{MlpKind::swiglu, "swiglu"}, {MlpKind::gelu, "gelu"}, {MlpKind::relu, "relu"}, {MlpKind::none, "none"}});
};
template <>
struct EnumNames<Position> {
  static constexpr auto value = std::to_array<std::pair<Position, std::string_view>>({{Position::t5, "t5"},
                                                                                      {Position::xl, "xl"},
                                                                                      {Position::rope, "rope"},
                                                                                      {Position::alibi, "alibi"},
                                                                                      {Position::none, "none"}});
};
template <>
struct EnumNames<MixerKind> {
  static constexpr auto value =
      std::to_array<std::pair<MixerKind, std::string_view>>({{MixerKind::softmax, "softmax"}, {MixerKind::vq, "vq"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"attention to the keys of window, cache and subsequence",
       "keys are codewords; what is behind the window is read through them (Transformer-VQ)"});
};
template <>
struct EnumNames<CacheKind> {
  static constexpr auto value = std::to_array<std::pair<CacheKind, std::string_view>>(
      {{CacheKind::none, "none"}, {CacheKind::hidden, "hidden"}, {CacheKind::kv, "kv"}});
};
template <>
struct EnumNames<StateType> {
  static constexpr auto value = std::to_array<std::pair<StateType, std::string_view>>(
      {{StateType::automatic, "auto"}, {StateType::f32, "f32"}, {StateType::bf16, "bf16"}});
};
template <>
struct EnumNames<Recompute> {
  static constexpr auto value =
      std::to_array<std::pair<Recompute, std::string_view>>({{Recompute::none, "none"},
                                                             {Recompute::blocks, "blocks"},
                                                             {Recompute::attention, "attention"},
                                                             {Recompute::mlp, "mlp"}});
};
template <>
struct EnumNames<InitializationKind> {
  static constexpr auto value = std::to_array<std::pair<InitializationKind, std::string_view>>(
      {{InitializationKind::normal, "normal"},
       {InitializationKind::transformer_xl, "transformer_xl"},
       {InitializationKind::fan_in, "fan_in"}});
};

struct NormConfig {
  NormKind kind = NormKind::rms;
  NormPlacement placement = NormPlacement::pre;
  double eps = 1e-5;
  bool last = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "RMSNorm, RMSNorm with a bias (Transformer-VQ) or LayerNorm"});
    v.field("placement", placement, {.help = "on the input of each sub-layer (pre) or after its residual sum (post)"});
    v.field("eps", eps, {.help = "added to the variance", .min = 0, .min_exclusive = true});
    v.field("last", last, {.help = "one more normalisation before the projection to the vocabulary"});
  }
};

struct MlpConfig {
  MlpKind kind = MlpKind::swiglu;
  int64_t hidden = 688;
  bool bias = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "gated SiLU, or one activation between two projections (gelu is the tanh form); none: blocks "
                     "without a feed-forward layer, as gated attention units are"});
    v.field("hidden", hidden, {.help = "inner width", .unit = "features", .min = 1, .max = 1 << 20});
    v.field("bias", bias, {.help = "biases in both projections"});
  }
};

struct CacheConfig {
  CacheKind kind = CacheKind::none;
  std::optional<int64_t> length;
  StateType dtype = StateType::automatic;

  // Nothing is the type the model computes in.
  std::optional<DType> storage() const {
    if (dtype == StateType::automatic) return std::nullopt;
    return dtype == StateType::bf16 ? DType::bf16 : DType::f32;
  }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "what a layer carries from one subsequence of a document to the next: its input "
                     "states (Transformer-XL) or its keys and values"});
    v.field("length", length,
            {.help = "tokens carried; none means the window",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .sizes_state = true});
    v.field("dtype", dtype,
            {.help = "how they are carried and saved; auto is the precision of the run. bf16 halves them and keeps 8 "
                     "significant bits. A step reads them through copies in the precision of the run",
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
            {.help = "distances above this share one position; 0 is off", .unit = "tokens", .min = 0, .max = 1 << 24});
    v.field("base", base,
            {.help = "sinusoid n of the width E turns by base^(-2n/E) per token", .min = 1, .min_exclusive = true});
  }
};

struct T5Config {
  int64_t buckets = 32;
  int64_t max_distance = 128;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("buckets", buckets, {.help = "learned biases per head and layer", .min = 2, .max = 4096});
    v.field("max_distance", max_distance,
            {.help = "distances from here on share the last bucket", .unit = "tokens", .min = 2, .max = 1 << 24});
  }
};

struct RopeConfig {
  double base = 10000;
  std::optional<int64_t> dims;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("base", base, {.help = "pair i of P turns by base^(-i/P) per token", .min = 1, .min_exclusive = true});
    v.field("dims", dims,
            {.help = "features of a head that are turned, the first ones, in pairs (i, i + dims/2); none means all",
             .unit = "features",
             .min = 2});
  }
};

struct AttentionConfig {
  MixerKind kind = MixerKind::softmax;
  std::optional<int64_t> window;
  bool same_length = false;
  bool attend_self = true;
  bool qk_norm = false;
  bool mask_empty_cache = true;
  CacheConfig cache;
  XlConfig xl;
  T5Config t5;
  RopeConfig rope;
  VqConfig vq;

  // kind: vq: tokens before a block that are seen one by one.
  int64_t vq_window() const { return window.value_or(vq.block); }
  // Tokens a layer carries. Meaningful when a cache is on and the configuration was checked.
  int64_t cache_length() const { return cache.kind == CacheKind::none ? 0 : cache.length.value_or(window.value_or(0)); }
  // The largest distance a token sees; nothing is no limit. Transformer-XL's same_length counts the token itself.
  std::optional<int64_t> reach() const { return same_length ? std::optional(cache_length() - 1) : window; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "the mixer of a layer"});
    v.field(
        "window", window,
        {.help = "a token sees the keys at distances 1..window; none means all of cache and subsequence. kind: vq sees "
                 "older ones too, by their codewords; none then means vq.block",
         .unit = "tokens",
         .min = 1,
         .max = 1 << 24});
    v.field("same_length", same_length,
            {.help = "a token sees cache.length keys, itself included (Transformer-XL's same_length): like window = "
                     "cache.length - 1, and goes without a window"});
    v.field("attend_self", attend_self, {.help = "a token also sees itself"});
    v.field(
        "qk_norm", qk_norm,
        {.help =
             "queries and keys of length 1 before any rotation; logits, biases by distance included, are multiplied "
             "by a learned scale per head"});
    v.field("mask_empty_cache", mask_empty_cache,
            {.help = "false: empty slots of a key/value cache count as zero keys, as published for the Memorizing "
                     "Transformer"});
    v.section("cache", cache, "what is carried along a document");
    v.section("xl", xl, "options of position: xl");
    v.section("t5", t5, "options of position: t5");
    v.section("rope", rope, "options of position: rope");
    v.section("vq", vq, "options of kind: vq");
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

struct DropoutConfig {
  double embedding = 0;
  double position = 0;
  double attention = 0;
  double mlp = 0;
  double residual = 0;
  double layer = 0;
  double output = 0;
  int64_t position_steps = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    const FieldInfo range{.unit = "probability", .min = 0, .max = 0.999};
    const auto with = [&](std::string_view help) {
      FieldInfo info = range;
      info.help = help;
      info.resumable = true;
      return info;
    };
    v.field("embedding", embedding, with("on token embeddings"));
    v.field("position", position, with("on the sinusoids of position: xl, one mask for all rows"));
    v.field("attention", attention, with("on attention probabilities"));
    v.field("mlp", mlp, with("inside the feed-forward layers, after the activation"));
    v.field("residual", residual, with("on what attention and feed-forward layers add"));
    v.field("layer", layer, with("all that a layer adds to a row (layer drop): one draw a row and block"));
    v.field("output", output, with("before the projection to the vocabulary"));
    v.field("position_steps", position_steps,
            {.help = "the mask of dropout.position is drawn anew each so many steps; Transformer-VQ keeps it for the "
                     "updates of a sequence",
             .unit = "steps",
             .min = 1,
             .resumable = true});
  }
};

struct EmbeddingConfig {
  bool tied = true;
  bool scale = false;
  double output_scale = 1;
  bool output_bias = false;
  bool sinusoid = false;
  double sinusoid_base = 1e5;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("tied", tied, {.help = "the projection to the vocabulary is the embedding table"});
    v.field("scale", scale, {.help = "multiply embeddings by sqrt(width)"});
    v.field("output_scale", output_scale,
            {.help = "logits are multiplied by this; Transformer-VQ has 0.005 with its large tied embeddings",
             .min = 0,
             .min_exclusive = true});
    v.field("output_bias", output_bias, {.help = "a learned bias for every token of the vocabulary"});
    v.field("sinusoid", sinusoid,
            {.help = "add sinusoids of the position in the document, times a learned number that begins at 0 "
                     "(Transformer-VQ, for images)"});
    v.field("sinusoid_base", sinusoid_base,
            {.help = "sinusoid n of the width E turns by base^(-2n/E) per token",
             .min = 1,
             .min_exclusive = true,
             .inapplicable = sinusoid ? "" : "embedding.sinusoid is false"});
  }
};

struct InitializationConfig {
  InitializationKind kind = InitializationKind::normal;
  std::optional<double> std;
  std::optional<bool> scale_residual;
  std::optional<double> embedding_std;
  std::optional<double> position_bias_std;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "kind", kind,
        {.help = "normal: all weights alike (GPT-2, DRT); transformer_xl: gains of normalisations are drawn around 1 "
                 "as well; fan_in: a matrix by the number of its inputs, cut off at three deviations, embeddings by "
                 "the width"});
    v.field("std", std,
            {.help = "standard deviation of weights and embeddings; none means 0.02; kind: fan_in has none",
             .min = 0,
             .min_exclusive = true});
    v.field("scale_residual", scale_residual,
            {.help = "divide by sqrt(2 layers) for the projections that add to the residual stream; none means "
                     "true, and false for transformer_xl"});
    v.field("embedding_std", embedding_std,
            {.help = "of token embeddings alone; none means as kind and std have it (Transformer-VQ has 1)",
             .min = 0,
             .min_exclusive = true});
    v.field(
        "position_bias_std", position_bias_std,
        {.help = "of u and v of position: xl; none means as kind and std have it (Transformer-VQ has 0)", .min = 0});
  }
  void check(ConfigChecker& c) const {
    c.require(kind != InitializationKind::fan_in || !std, "std",
              "kind: fan_in takes the deviation from the size of each matrix; leave std out or use kind: normal");
  }
};

struct ModelConfig {
  int64_t width = 256;
  int64_t layers = 6;
  int64_t heads = 4;
  std::optional<int64_t> key_heads;
  std::optional<int64_t> head_size;
  NormConfig norm;
  MlpConfig mlp;
  Position position = Position::xl;
  AttentionConfig attention;
  std::vector<MemoryConfig> memory;
  std::vector<ConfigOverlay> layer_overrides;
  EmbeddingConfig embedding;
  DropoutConfig dropout;
  InitializationConfig initialization;
  Recompute recompute = Recompute::none;

  int64_t size_of_head() const { return head_size.value_or(width / heads); }
  int64_t heads_of_keys() const { return key_heads.value_or(heads); }
  // One entry per layer: position and attention with the overrides applied.
  std::vector<LayerConfig> layer_configs() const;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("width", width, {.help = "size of the residual stream", .unit = "features", .min = 1, .max = 1 << 20});
    v.field("layers", layers, {.help = "decoder blocks", .min = 1, .max = 10000});
    v.field("heads", heads, {.help = "attention heads", .min = 1, .max = 10000});
    v.field(
        "key_heads", key_heads,
        {.help = "heads of keys and values, each shared by heads / key_heads query heads (grouped-query attention); "
                 "none means heads",
         .min = 1,
         .max = 10000});
    v.field("head_size", head_size,
            {.help = "features of a head; none means width / heads", .unit = "features", .min = 1});
    v.section("norm", norm, "normalisation");
    v.section("mlp", mlp, "feed-forward layers");
    v.field("position", position,
            {.help = "T5 bias by distance, Transformer-XL relative positions, rotary positions, ALiBi (slope "
                     "2^(-8h/heads) of head h = 1, 2, ... for any number of heads), or nothing"});
    v.section("attention", attention, "the mixer of every layer");
    v.list("memory", memory, "memories beside the mixer");
    v.overlay("layer_overrides", layer_overrides, LayerConfig{position, attention},
              "other positions or attention for some layers: [{layers: [0, -1], attention: {window: 128}}]");
    v.section("embedding", embedding, "token embeddings");
    v.section("dropout", dropout, "dropout in training");
    v.section("initialization", initialization, "initial weights");
    v.field("recompute", recompute,
            {.help = "computed a second time in the backward pass instead of kept: whole blocks, or the attention or "
                     "feed-forward part of each; less memory, same results",
             .resumable = true});
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
