// The configuration of a model: one section per part.
#pragma once

#include "layers/config/layer_config.h"
#include "layers/config/memory_config.h"

namespace quire {

enum class Residual { sequential, parallel };
enum class Recompute { none, blocks, attention, mlp };

template <>
struct EnumNames<Recompute> {
  static constexpr auto value =
      std::to_array<std::pair<Recompute, std::string_view>>({{Recompute::none, "none"},
                                                             {Recompute::blocks, "blocks"},
                                                             {Recompute::attention, "attention"},
                                                             {Recompute::mlp, "mlp"}});
};

template <>
struct EnumNames<Residual> {
  static constexpr auto value = std::to_array<std::pair<Residual, std::string_view>>(
      {{Residual::sequential, "sequential"}, {Residual::parallel, "parallel"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the feed-forward layer reads the sum with the mixer's output",
       "mixer and feed-forward layer read the same input, each through its own normalisation (GPT-NeoX)"});
};

// Says how blocks are combined.
struct StackConfig {
  KindConfig mechanism{Role::stack};

  template <class Visitor>
  void fields(Visitor& v) {
    v.kinds("kind", RegisteredKinds(mechanism), KindOptions::in_section,
            {.help = "kind of stack: how the blocks are connected; its options stand in a section of that name"});
  }
};

struct ModelConfig : HeadsConfig {
  int64_t width = 256;
  int64_t layers = 6;
  std::optional<int64_t> vocabulary;
  NormConfig norm;
  Residual residual = Residual::sequential;
  MlpConfig mlp;
  PositionConfig position;
  AttentionConfig attention;
  std::vector<MemoryConfig> memory;
  StackConfig stack;
  std::vector<ConfigOverlay> layer_overrides;
  EmbeddingConfig embedding;
  DropoutConfig dropout;
  InitializationConfig initialization;
  Recompute recompute = Recompute::none;

  int64_t size_of_head() const { return head_size.value_or(width / heads); }
  int64_t heads_of_keys() const { return key_heads.value_or(heads); }
  // No key: the layers of a model that reads without training (reading_of), which mechanisms have changed.
  std::vector<LayerConfig> resolved = {};
  // Returns the layer that no override changes.
  LayerConfig common_layer() const { return {{heads, key_heads, head_size}, norm, mlp, position, attention}; }
  // One entry per layer: those of `resolved`, or common_layer() with the overrides applied.
  std::vector<LayerConfig> layer_configs() const;
  // Returns the model with the heads, normalisation, feed-forward layer, positions and mixer of one of its layers:
  // the sizes that the parts of this layer have.
  ModelConfig as_seen_by(const LayerConfig& layer) const;
  // The layer that a number of the configuration means: negative ones count from the end.
  int64_t layer_index(int64_t layer) const { return layer < 0 ? layer + layers : layer; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("width", width,
            {.help = "size of the residual stream (E)",
             .unit = "features",
             .min = 1,
             .max = 1 << 20,
             .meant = "hidden_size d_model n_embd embed_dim dim"});
    v.field("layers", layers,
            {.help = "number of blocks",
             .min = 1,
             .max = 10000,
             .meant = "num_layers n_layer n_layers num_hidden_layers depth"});
    v.field(
        "vocabulary", vocabulary,
        {.help =
             "rows of the embedding and of the projection to the vocabulary, at least the tokenizer's ids. Rows "
             "beyond them belong to no token: they take part of the probability, but are never chosen. none: as many "
             "as the tokenizer has ids",
         .unit = "rows",
         .min = 1,
         .max = 1 << 24,
         .meant = "vocab_size padded_vocab_size n_vocab"});
    HeadsConfig::fields(v);
    v.section("norm", norm, "normalisation");
    v.field("residual", residual, {.help = "how the two sub-layers of a block follow each other"});
    v.section("mlp", mlp, "feed-forward layers");
    v.section("position", position, "position information of every layer");
    v.section("attention", attention, "the mixer of every layer");
    v.list("memory", memory, "memories beside the mixer");
    v.section("stack", stack, "the stack of blocks");
    v.overlay(
        "layer_overrides", layer_overrides, common_layer(),
        "other heads, key_heads, head_size, norm (without last), mlp, position or attention for some layers: "
        "[{layers: [0, -1], heads: 8, mlp: {hidden: 1024}, position: {kind: none}}]. What an entry does not name stays "
        "as in the model; another kind begins with its own defaults");
    v.section("embedding", embedding, "token embeddings");
    v.section("dropout", dropout, "dropout in training");
    v.section("initialization", initialization, "initial weights");
    v.field("recompute", recompute,
            {.help = "activations that are computed again in the backward pass instead of kept: those of whole blocks, "
                     "or of their attention or feed-forward part. This saves memory and changes no result",
             .resumable = true});
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
