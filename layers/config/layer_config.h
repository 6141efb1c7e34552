// The configuration of one layer: its heads, normalisation, feed-forward layer, positions and mixer.
#pragma once

#include <optional>

#include "layers/config/attention_config.h"
#include "layers/config/part_config.h"

namespace quire {

// The heads of a mixer, as model.heads, model.key_heads and model.head_size.
struct HeadsConfig {
  int64_t heads = 4;
  std::optional<int64_t> key_heads;
  std::optional<int64_t> head_size;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("heads", heads,
            {.help = "number of attention heads",
             .min = 1,
             .max = 10000,
             .meant = "num_heads n_head n_heads num_attention_heads"});
    v.field("key_heads", key_heads,
            {.help = "number of key/value heads, each shared by heads / key_heads query heads (grouped-query "
                     "attention); none: the value of `heads`",
             .min = 1,
             .max = 10000});
    v.field("head_size", head_size,
            {.help = "features of a head; none: width / heads", .unit = "features", .min = 1, .max = 1 << 20});
  }
};

// Holds the options that model.layer_overrides may change for some layers.
struct LayerConfig : HeadsConfig {
  LayerNormConfig norm;
  MlpConfig mlp;
  PositionConfig position;
  AttentionConfig attention;

  template <class Visitor>
  void fields(Visitor& v) {
    HeadsConfig::fields(v);
    v.section("norm", norm, "normalisation");
    v.section("mlp", mlp, "the feed-forward layer");
    v.section("position", position, "position information");
    v.section("attention", attention, "the mixer");
  }
};

}  // namespace quire
