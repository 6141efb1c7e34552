// The configuration of a model's parts without state: norms, feed-forward layers, embeddings, dropout, initial weights.
#pragma once

#include "core/config/config.h"

namespace quire {

enum class NormKind { rms, rms_bias, layer };
enum class NormPlacement { pre, post, after, both };
enum class MlpKind { swiglu, geglu, geglu_erf, gelu, gelu_erf, relu, none };
enum class InitializationKind { normal, transformer_xl, fan_in };

template <>
struct EnumNames<NormKind> {
  static constexpr auto value = std::to_array<std::pair<NormKind, std::string_view>>(
      {{NormKind::rms, "rms"}, {NormKind::rms_bias, "rms_bias"}, {NormKind::layer, "layer"}});
};
template <>
struct EnumNames<NormPlacement> {
  static constexpr auto value =
      std::to_array<std::pair<NormPlacement, std::string_view>>({{NormPlacement::pre, "pre"},
                                                                 {NormPlacement::post, "post"},
                                                                 {NormPlacement::after, "after"},
                                                                 {NormPlacement::both, "both"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"on the input of each sub-layer", "on the residual sum behind each sub-layer",
       "on the output of each sub-layer, before it is added (OLMo 2)",
       "on the input and, with another gain, on the output of each sub-layer (Gemma 3)"});
};
template <>
struct EnumNames<MlpKind> {
  static constexpr auto value = std::to_array<std::pair<MlpKind, std::string_view>>({{MlpKind::swiglu, "swiglu"},
                                                                                     {MlpKind::geglu, "geglu"},
                                                                                     {MlpKind::geglu_erf, "geglu_erf"},
                                                                                     {MlpKind::gelu, "gelu"},
                                                                                     {MlpKind::gelu_erf, "gelu_erf"},
                                                                                     {MlpKind::relu, "relu"},
                                                                                     {MlpKind::none, "none"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"gated SiLU (LLaMA)", "gated GELU in its tanh form (Gemma)", "gated exact GELU",
       "GELU in its tanh form between two projections (GPT-2)", "exact GELU between two projections (GPT-NeoX)",
       "ReLU between two projections", "blocks without a feed-forward layer, as gated attention units are"});
};
template <>
struct EnumNames<InitializationKind> {
  static constexpr auto value = std::to_array<std::pair<InitializationKind, std::string_view>>(
      {{InitializationKind::normal, "normal"},
       {InitializationKind::transformer_xl, "transformer_xl"},
       {InitializationKind::fan_in, "fan_in"}});
};

// The normalisations of a layer.
struct LayerNormConfig {
  NormKind kind = NormKind::rms;
  NormPlacement placement = NormPlacement::pre;
  double eps = 1e-5;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "RMSNorm, RMSNorm with a bias (Lingle 2024) or LayerNorm"});
    v.field("placement", placement, {.help = "where a layer is normalised"});
    v.field("eps", eps, {.help = "number that is added to the variance", .min = 0, .min_exclusive = true});
  }
};

struct NormConfig : LayerNormConfig {
  bool last = true;

  template <class Visitor>
  void fields(Visitor& v) {
    LayerNormConfig::fields(v);
    v.field("last", last,
            {.help = "the output of the last block is normalised before the projection to the vocabulary"});
  }
};

struct MlpConfig {
  MlpKind kind = MlpKind::swiglu;
  int64_t hidden = 688;
  bool bias = false;

  bool is_gated() const { return kind == MlpKind::swiglu || kind == MlpKind::geglu || kind == MlpKind::geglu_erf; }
  // Projections of width x hidden weights.
  int64_t projections() const { return kind == MlpKind::none ? 0 : is_gated() ? 3 : 2; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "kind of feed-forward layer"});
    v.field("hidden", hidden,
            {.help = "number of hidden features",
             .unit = "features",
             .min = 1,
             .max = 1 << 20,
             .meant = "intermediate_size d_ff ffn_dim"});
    v.field("bias", bias, {.help = "the projections have biases"});
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
    v.field("embedding", embedding, with("dropout of token embeddings"));
    v.field("position", position, with("dropout of the sinusoids of position.kind: xl, with one mask for all rows"));
    v.field("attention", attention, with("dropout of attention probabilities"));
    v.field("mlp", mlp, with("dropout of the hidden features of feed-forward layers"));
    v.field("residual", residual, with("dropout of what attention and feed-forward layers add to the residual stream"));
    v.field("layer", layer, with("probability that a block is left out for a row (layer drop)"));
    v.field("output", output, with("dropout before the projection to the vocabulary"));
    v.field("position_steps", position_steps,
            {.help = "number of steps for which a mask of dropout.position is kept; Lingle 2024 keeps it for the "
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
  std::optional<int64_t> learned_positions;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("tied", tied, {.help = "the projection to the vocabulary uses the embedding table"});
    v.field("scale", scale, {.help = "embeddings are multiplied by sqrt(width)"});
    v.field("output_scale", output_scale,
            {.help = "logits are multiplied by this; Lingle 2024 has 0.005 with its large tied embeddings",
             .min = 0,
             .min_exclusive = true});
    v.field("output_bias", output_bias, {.help = "a learned bias for every token of the vocabulary"});
    v.field("sinusoid", sinusoid,
            {.help = "sinusoids of the position in the document, times a learned number that begins at 0, are added to "
                     "the embeddings (Lingle 2024, for images)"});
    v.field("sinusoid_base", sinusoid_base,
            {.help = "sinusoid n advances by base^(-2n/E) per token",
             .min = 1,
             .min_exclusive = true,
             .inapplicable = sinusoid ? "" : "embedding.sinusoid is false"});
    v.field(
        "learned_positions", learned_positions,
        {.help = "number of learned vectors that are added to the embeddings by the position in the subsequence "
                 "(GPT-2), or in the part of the document that a row holds of it. data.subsequence is at most this, "
                 "and the model carries nothing from one subsequence to the next. none: there are none",
         .unit = "positions",
         .min = 1,
         .max = 1 << 24,
         .meant = "n_positions max_position_embeddings n_ctx"});
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
        {.help = "normal: all weights alike (GPT-2); transformer_xl: gains of normalisations are drawn around 1 "
                 "as well; fan_in: a matrix by the number of its inputs, cut off at three deviations, embeddings by "
                 "the width"});
    v.field(
        "std", std,
        {.help = "standard deviation of weights and embeddings; none: 0.02. It cannot be combined with kind: fan_in",
         .min = 0,
         .min_exclusive = true});
    v.field("scale_residual", scale_residual,
            {.help = "projections that add to the residual stream are divided by sqrt(2 layers); none: true, but false "
                     "for transformer_xl"});
    v.field(
        "embedding_std", embedding_std,
        {.help =
             "standard deviation of token embeddings; none: the value that `kind` and `std` give (Lingle 2024 has 1)",
         .min = 0,
         .min_exclusive = true});
    v.field("position_bias_std", position_bias_std,
            {.help = "standard deviation of u and v of position.kind: xl; none: the value that `kind` and `std` give "
                     "(Lingle 2024 has 0)",
             .min = 0});
  }
  void check(ConfigChecker& c) const {
    c.require(kind != InitializationKind::fan_in || !std, "std",
              "kind: fan_in takes the deviation from the size of each matrix; leave std out or use kind: normal");
  }
};

}  // namespace quire
