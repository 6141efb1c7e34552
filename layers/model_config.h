// The configuration of a model: one section per part.
#pragma once

#include <cmath>

#include "core/config.h"

namespace quire {

enum class NormKind { rms, layer };
enum class NormPlacement { pre, post };
enum class MlpKind { swiglu, gelu, relu };
enum class Position { t5, xl, none };
enum class MixerKind { softmax };
enum class CacheKind { none, hidden, kv };

template <>
struct EnumNames<NormKind> {
  static constexpr auto value =
      std::to_array<std::pair<NormKind, std::string_view>>({{NormKind::rms, "rms"}, {NormKind::layer, "layer"}});
};
template <>
struct EnumNames<NormPlacement> {
  static constexpr auto value = std::to_array<std::pair<NormPlacement, std::string_view>>(
      {{NormPlacement::pre, "pre"}, {NormPlacement::post, "post"}});
};
template <>
struct EnumNames<MlpKind> {
  static constexpr auto value = std::to_array<std::pair<MlpKind, std::string_view>>(
      {{MlpKind::swiglu, "swiglu"}, {MlpKind::gelu, "gelu"}, {MlpKind::relu, "relu"}});
};
template <>
struct EnumNames<Position> {
  static constexpr auto value = std::to_array<std::pair<Position, std::string_view>>(
      {{Position::t5, "t5"}, {Position::xl, "xl"}, {Position::none, "none"}});
};
template <>
struct EnumNames<MixerKind> {
  static constexpr auto value =
      std::to_array<std::pair<MixerKind, std::string_view>>({{MixerKind::softmax, "softmax"}});
};
template <>
struct EnumNames<CacheKind> {
  static constexpr auto value = std::to_array<std::pair<CacheKind, std::string_view>>(
      {{CacheKind::none, "none"}, {CacheKind::hidden, "hidden"}, {CacheKind::kv, "kv"}});
};

struct NormConfig {
  NormKind kind = NormKind::rms;
  NormPlacement placement = NormPlacement::pre;
  double eps = 1e-5;
  bool last = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "RMSNorm or LayerNorm"});
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
    v.field("kind", kind, {.help = "gated SiLU, or one activation between two projections (gelu is the tanh form)"});
    v.field("hidden", hidden, {.help = "inner width", .unit = "features", .min = 1, .max = 1 << 20});
    v.field("bias", bias, {.help = "biases in both projections"});
  }
};

struct CacheConfig {
  CacheKind kind = CacheKind::none;
  std::optional<int64_t> length;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind,
            {.help = "what a layer carries from one subsequence of a document to the next: its input "
                     "states (Transformer-XL) or its keys and values"});
    v.field("length", length,
            {.help = "tokens carried; none means the window", .unit = "tokens", .min = 1, .max = 1 << 24});
  }
};

struct XlConfig {
  bool share_biases = true;
  int64_t clamp = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("share_biases", share_biases, {.help = "one pair of biases u, v for all layers instead of one per layer"});
    v.field("clamp", clamp,
            {.help = "distances above this share one position; 0 is off", .unit = "tokens", .min = 0, .max = 1 << 24});
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

struct AttentionConfig {
  MixerKind kind = MixerKind::softmax;
  std::optional<int64_t> window;
  bool attend_self = true;
  bool qk_norm = false;
  bool mask_empty_cache = true;
  CacheConfig cache;
  XlConfig xl;
  T5Config t5;

  // Tokens a layer carries. Meaningful when a cache is on and the configuration was checked.
  int64_t cache_length() const { return cache.kind == CacheKind::none ? 0 : cache.length.value_or(window.value_or(0)); }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "the mixer of a layer"});
    v.field("window", window,
            {.help = "a token sees the keys at distances 1..window; none means all of cache and subsequence",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24});
    v.field("attend_self", attend_self, {.help = "a token also sees itself"});
    v.field("qk_norm", qk_norm, {.help = "queries and keys of length 1, with a learned scale per head"});
    v.field("mask_empty_cache", mask_empty_cache,
            {.help = "false: empty slots of a key/value cache count as zero keys, as published for the Memorizing "
                     "Transformer"});
    v.section("cache", cache, "what is carried along a document");
    v.section("xl", xl, "options of position: xl");
    v.section("t5", t5, "options of position: t5");
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
  double attention = 0;
  double mlp = 0;
  double residual = 0;
  double output = 0;

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
    v.field("attention", attention, with("on attention probabilities"));
    v.field("mlp", mlp, with("inside the feed-forward layers, after the activation"));
    v.field("residual", residual, with("on what attention and feed-forward layers add"));
    v.field("output", output, with("before the projection to the vocabulary"));
  }
};

struct EmbeddingConfig {
  bool tied = true;
  bool scale = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("tied", tied, {.help = "the projection to the vocabulary is the embedding table"});
    v.field("scale", scale, {.help = "multiply embeddings by sqrt(width)"});
  }
};

struct InitializationConfig {
  double std = 0.02;
  bool scale_residual = true;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("std", std, {.help = "standard deviation of weights and embeddings", .min = 0, .min_exclusive = true});
    v.field("scale_residual", scale_residual,
            {.help = "divide it by sqrt(2 layers) for the projections that add to the residual stream"});
  }
};

// A memory beside the mixer of some layers; kinds come from the registry in layers/memory/memory.h.
struct MemoryConfig {
  std::string kind;
  std::vector<int64_t> layers;
  int64_t size = 8;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "registered mechanism", .required = true});
    v.field("layers", layers, {.help = "layers from 0; negatives from the end", .required = true});
    v.field("size", size, {.help = "entries per row", .unit = "tokens", .min = 1});
  }
};

struct ModelConfig {
  int64_t width = 256;
  int64_t layers = 6;
  int64_t heads = 4;
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

  int64_t size_of_head() const { return head_size.value_or(width / heads); }
  // Standard deviation of the projections that add to the residual stream (Radford et al. 2019).
  double residual_std() const {
    return initialization.scale_residual ? initialization.std / std::sqrt(2.0 * static_cast<double>(layers))
                                         : initialization.std;
  }
  // One entry per layer: position and attention with the overrides applied.
  std::vector<LayerConfig> layer_configs() const;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("width", width, {.help = "size of the residual stream", .unit = "features", .min = 1, .max = 1 << 20});
    v.field("layers", layers, {.help = "decoder blocks", .min = 1, .max = 10000});
    v.field("heads", heads, {.help = "attention heads", .min = 1, .max = 10000});
    v.field("head_size", head_size,
            {.help = "features of a head; none means width / heads", .unit = "features", .min = 1});
    v.section("norm", norm, "normalisation");
    v.section("mlp", mlp, "feed-forward layers");
    v.field("position", position, {.help = "T5 bias by distance, Transformer-XL relative positions, or nothing"});
    v.section("attention", attention, "the mixer of every layer");
    v.list("memory", memory, "memories beside the mixer");
    v.overlay("layer_overrides", layer_overrides, LayerConfig{position, attention},
              "other positions or attention for some layers: [{layers: [0, -1], attention: {window: 128}}]");
    v.section("embedding", embedding, "token embeddings");
    v.section("dropout", dropout, "dropout in training");
    v.section("initialization", initialization, "initial weights");
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
