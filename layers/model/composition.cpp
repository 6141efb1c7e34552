#include "layers/model/composition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "layers/model/model_mechanisms.h"

namespace quire {

std::span<const CompositionRule> attention_rules() {
  static const std::vector<CompositionRule> rules{
      {"position", "position xl needs an even width: half sines, half cosines",
       [](const Place& p) { return p.layer.position.kind == Position::xl && p.model.width % 2 != 0; }},
      {"attention.shifted_share", "the share is less than one of the model's features; set it to 0 or larger",
       [](const Place& p) {
         const AttentionConfig& attention = p.layer.attention;
         return attention.shifted_share > 0 && attention.shifted_features(p.model.width) == 0;
       }},
      {"position.t5.max_distance", "position.t5.max_distance must exceed half of position.t5.buckets",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::t5 && position.t5.max_distance <= position.t5.buckets / 2;
       }},
      {"position.rope.dims", "position rope turns pairs of features: the number must be even",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::rope && position.rope.dims.value_or(p.model.size_of_head()) % 2 != 0;
       }},
      {"position.rope.dims", "position.rope.dims is more than a head has",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::rope && position.rope.dims.value_or(0) > p.model.size_of_head();
       }},
  };
  return rules;
}

std::vector<LayerConfig> ModelConfig::layer_configs() const {
  if (!resolved.empty()) return resolved;
  std::vector<LayerConfig> configs(static_cast<size_t>(layers), LayerConfig{position, attention});
  for (const ConfigOverlay& overlay : layer_overrides) {
    for (const int64_t layer : overlay.layers) {
      const int64_t index = layer < 0 ? layer + layers : layer;
      configs[static_cast<size_t>(index)] = apply_overlay(configs[static_cast<size_t>(index)], overlay);
    }
  }
  return configs;
}

namespace {

// Returns the key that a broken rule of a layer points to: the rule's own, or, where an override has broken it, the key
// that the last such override names.
std::string place_of_fault(const ModelConfig& model, const Mechanism& mechanism, const CompositionRule& rule,
                           const Place& place) {
  const LayerConfig base{model.position, model.attention};
  const bool same_kind = model.attention.mechanism.kind == mechanism.kind;
  if (same_kind && rule.refused({model, base, base.attention.mechanism.options, place.index})) return rule.key;
  for (size_t i = model.layer_overrides.size(); i-- > 0;) {
    const ConfigOverlay& overlay = model.layer_overrides[i];
    const auto covers = [&](int64_t layer) { return model.layer_index(layer) == place.index; };
    if (std::none_of(overlay.layers.begin(), overlay.layers.end(), covers)) continue;
    std::string key = rule.key;
    while (!key.empty() && overlay.changes.at(key) == nullptr) {
      key.resize(key.find('.') == std::string::npos ? 0 : key.rfind('.'));
    }
    if (key.empty()) continue;
    // A section with a single entry means that entry.
    const ConfigNode* node = overlay.changes.at(key);
    while (node->kind == ConfigNode::Kind::map && node->entries.size() == 1) {
      key = join_key(key, node->entries.front().key);
      node = &node->entries.front().value;
    }
    return fmt::format("layer_overrides.{}.{}", i, key);
  }
  return rule.key;
}

}  // namespace

void ModelConfig::check(ConfigChecker& c) const {
  c.require(head_size.has_value() || width % heads == 0, "heads",
            fmt::format("width {} is no multiple of {} heads; set head_size or other heads", width, heads));
  c.require(heads % heads_of_keys() == 0, "key_heads",
            fmt::format("{} heads are no multiple of {} key heads", heads, heads_of_keys()));
  const auto require_layers = [&](const std::vector<int64_t>& listed, const std::string& key) {
    std::set<int64_t> named;
    for (const int64_t layer : listed) {
      c.require(layer >= -layers && layer < layers, key, fmt::format("there is no layer {} among {}", layer, layers));
      const int64_t index = layer_index(layer);
      c.require(named.insert(index).second, key, fmt::format("layer {} is named twice", index));
    }
  };
  for (size_t i = 0; i < layer_overrides.size(); ++i) {
    require_layers(layer_overrides[i].layers, fmt::format("layer_overrides.{}.layers", i));
  }
  for (size_t i = 0; i < memory.size(); ++i) require_layers(memory[i].layers, fmt::format("memory.{}.layers", i));

  Insertion insertion;
  visit_mechanisms(*this, [&](const Mechanism& mechanism, const Place& place, const std::string& section) {
    const bool in_layers =
        mechanism.role != Role::stack && (!layer_overrides.empty() || mechanism.role == Role::memory);
    const auto require = [&](const CompositionRule& rule) {
      if (!rule.refused(place)) return;
      const bool of_layer = mechanism.role == Role::mixer;
      c.require(false, of_layer ? place_of_fault(*this, mechanism, rule, place) : join_key(section, rule.key),
                in_layers ? fmt::format("{} (layer {})", rule.message, place.index) : rule.message);
    };
    if (mechanism.role == Role::memory) {
      const std::optional<LocalAttention> local = local_attention_of(place);
      c.require(local && local->takes_memories, join_key(section, "layers"),
                fmt::format("layer {} has attention.kind {}, beside which no memory goes", place.index,
                            place.layer.attention.mechanism.kind));
    }
    const Insertion inserted = mechanism.insertion(place);
    const bool both = inserted.any() && insertion.any();
    c.require(!both || (inserted.period == insertion.period && inserted.ids == insertion.ids), section,
              fmt::format("{} inserts a token after every {}, another mechanism of the model after every {}; set them "
                          "alike",
                          mechanism.kind, inserted.period, insertion.period));
    c.require(!both || inserted.predicted == insertion.predicted, section,
              fmt::format("the tokens that {} inserts are {}, those of another mechanism of the model are {}; set them "
                          "alike",
                          mechanism.kind, inserted.predicted ? "in the loss" : "not in the loss",
                          insertion.predicted ? "in it" : "not"));
    if (inserted.any()) insertion = inserted;
    // Its own rules come first, because they say more.
    for (const CompositionRule& rule : mechanism.rules) require(rule);
    if (mechanism.role != Role::mixer) return;
    for (const CompositionRule& rule : attention_rules()) require(rule);
  });
  const std::vector<LayerConfig> configs = layer_configs();
  c.require(!embedding.sinusoid || width % 2 == 0, "embedding.sinusoid",
            fmt::format("width {} is odd; sines and cosines need an even one", width));
  c.require(dropout.position == 0 || std::any_of(configs.begin(), configs.end(),
                                                 [](const LayerConfig& l) { return l.position.kind == Position::xl; }),
            "dropout.position", "no layer has position xl, whose sinusoids it would drop");
}

}  // namespace quire
