#include "layers/composition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "layers/memory/memory.h"

namespace quire {

const std::vector<CompositionRule>& composition_rules() {
  static const std::vector<CompositionRule> rules{
      {"position", "position xl needs an even width: half sines, half cosines",
       [](const LayerConfig& l, const ModelConfig& m) { return l.position == Position::xl && m.width % 2 != 0; }},
      {"attention.cache.length", "set attention.cache.length or attention.window: the cache needs a length",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.cache.kind != CacheKind::none && l.attention.cache_length() == 0;
       }},
      {"attention.cache.length", "a length without a cache has no meaning; set attention.cache.kind to hidden or kv",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.cache.kind == CacheKind::none && l.attention.cache.length.has_value();
       }},
      {"attention.cache.length", "the cache is longer than attention.window: tokens beyond the window are never seen",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.cache.kind != CacheKind::none && l.attention.window.has_value() &&
                l.attention.cache_length() > *l.attention.window;
       }},
      {"attention.cache.dtype", "a dtype without a cache has no meaning; set attention.cache.kind to hidden or kv",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.cache.kind == CacheKind::none && l.attention.cache.dtype != StateType::automatic;
       }},
      {"attention.same_length", "same_length counts the keys of a cache; set attention.cache.kind to hidden or kv",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.same_length && l.attention.cache.kind == CacheKind::none;
       }},
      {"attention.same_length", "same_length and attention.window both say how far a token sees; give one of them",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.same_length && l.attention.window.has_value();
       }},
      {"attention.same_length", "same_length counts the token itself; it does not go with attend_self: false",
       [](const LayerConfig& l, const ModelConfig&) { return l.attention.same_length && !l.attention.attend_self; }},
      {"attention.mask_empty_cache", "false needs attention.cache.kind: kv; there are no empty key slots otherwise",
       [](const LayerConfig& l, const ModelConfig&) {
         return !l.attention.mask_empty_cache && l.attention.cache.kind != CacheKind::kv;
       }},
      {"attention.t5.max_distance", "attention.t5.max_distance must exceed half of attention.t5.buckets",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.position == Position::t5 && l.attention.t5.max_distance <= l.attention.t5.buckets / 2;
       }},
      {"attention.rope.dims", "position rope turns pairs of features: the number must be even",
       [](const LayerConfig& l, const ModelConfig& m) {
         return l.position == Position::rope && l.attention.rope.dims.value_or(m.size_of_head()) % 2 != 0;
       }},
      {"attention.rope.dims", "attention.rope.dims is more than a head has",
       [](const LayerConfig& l, const ModelConfig& m) {
         return l.position == Position::rope && l.attention.rope.dims.value_or(0) > m.size_of_head();
       }},
      {"attention.kind", "vq keeps its own window and cache; leave attention.cache.kind at none",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.kind == MixerKind::vq && l.attention.cache.kind != CacheKind::none;
       }},
      {"position",
       "vq reads tokens behind its window without a position, which rope cannot give; use xl, t5, alibi or "
       "none",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.kind == MixerKind::vq && l.position == Position::rope;
       }},
      {"attention.qk_norm", "vq normalises queries and keys by itself; leave qk_norm out",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.kind == MixerKind::vq && l.attention.qk_norm;
       }},
      {"attention.attend_self", "vq always sees the token itself; leave attend_self at true",
       [](const LayerConfig& l, const ModelConfig&) {
         return l.attention.kind == MixerKind::vq && !l.attention.attend_self;
       }},
      {"dropout.attention", "vq has no dropout of probabilities: those of cached tokens stand for many; use 0",
       [](const LayerConfig& l, const ModelConfig& m) {
         return l.attention.kind == MixerKind::vq && m.dropout.attention > 0;
       }},
      {"attention.qk_norm", "normalised queries and keys do not go with position xl, which adds terms to the raw query",
       [](const LayerConfig& l, const ModelConfig&) { return l.attention.qk_norm && l.position == Position::xl; }},
  };
  return rules;
}

CompositionFault find_composition_fault(const LayerConfig& layer, const ModelConfig& model) {
  for (const CompositionRule& rule : composition_rules()) {
    if (rule.refused(layer, model)) return {rule.key, rule.message, true};
  }
  return {};
}

std::vector<LayerConfig> ModelConfig::layer_configs() const {
  std::vector<LayerConfig> configs(static_cast<size_t>(layers), LayerConfig{position, attention});
  for (const ConfigOverlay& overlay : layer_overrides) {
    for (const int64_t layer : overlay.layers) {
      const int64_t index = layer < 0 ? layer + layers : layer;
      configs[static_cast<size_t>(index)] = apply_overlay(configs[static_cast<size_t>(index)], overlay);
    }
  }
  return configs;
}

void ModelConfig::check(ConfigChecker& c) const {
  c.require(head_size.has_value() || width % heads == 0, "heads",
            fmt::format("width {} is no multiple of {} heads; set head_size or other heads", width, heads));
  c.require(heads % heads_of_keys() == 0, "key_heads",
            fmt::format("{} heads are no multiple of {} key heads", heads, heads_of_keys()));
  const auto require_layers = [&](const std::vector<int64_t>& wanted, const std::string& key) {
    std::set<int64_t> named;
    for (const int64_t layer : wanted) {
      c.require(layer >= -layers && layer < layers, key, fmt::format("there is no layer {} among {}", layer, layers));
      const int64_t index = layer < 0 ? layer + layers : layer;
      c.require(named.insert(index).second, key, fmt::format("layer {} is named twice", index));
    }
  };
  for (size_t i = 0; i < layer_overrides.size(); ++i) {
    require_layers(layer_overrides[i].layers, fmt::format("layer_overrides.{}.layers", i));
  }
  const std::vector<LayerConfig> configs = layer_configs();
  for (size_t i = 0; i < configs.size(); ++i) {
    const CompositionFault fault = find_composition_fault(configs[i], *this);
    c.require(!fault.found, fault.key,
              layer_overrides.empty() ? fault.message : fmt::format("{} (layer {})", fault.message, i));
  }
  c.require(!embedding.sinusoid || width % 2 == 0, "embedding.sinusoid",
            fmt::format("width {} is odd; sines and cosines need an even one", width));
  c.require(dropout.position == 0 || std::any_of(configs.begin(), configs.end(),
                                                 [](const LayerConfig& l) { return l.position == Position::xl; }),
            "dropout.position", "no layer has position xl, whose sinusoids it would drop");
  std::set<int64_t> with_memory;
  for (size_t i = 0; i < memory.size(); ++i) {
    require_layers(memory[i].layers, fmt::format("memory.{}.layers", i));
    for (const int64_t layer : memory[i].layers) {
      const bool first = with_memory.insert(layer < 0 ? layer + layers : layer).second;
      c.require(
          first || memory[i].combine != KnnCombine::joint, fmt::format("memory.{}.combine", i),
          fmt::format("joint needs the local keys themselves; list it before the other memories of layer {}", layer));
      const auto index = static_cast<size_t>(layer < 0 ? layer + layers : layer);
      const AttentionConfig& mixer = configs[index].attention;
      c.require(
          memory[i].write != KnnWrite::evict || mixer.cache.kind != CacheKind::none, fmt::format("memory.{}.write", i),
          fmt::format("layer {} has no cache that entries could leave; set attention.cache or write: produce", index));
      c.require(memory[i].write != KnnWrite::evict || mixer.mask_empty_cache, fmt::format("memory.{}.write", i),
                "the empty slots of attention.mask_empty_cache: false are no tokens; use write: produce");
      c.require(mixer.kind == MixerKind::softmax, fmt::format("memory.{}.layers", i),
                fmt::format("layer {} has attention.kind vq; a memory goes beside softmax attention", index));
    }
    c.require(has_memory(memory[i].kind), fmt::format("memory.{}.kind", i),
              fmt::format("there is no memory '{}'; known: {}", memory[i].kind, known_memories()));
  }
}

}  // namespace quire
