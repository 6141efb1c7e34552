#include "layers/model/composition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "layers/model/model_mechanisms.h"
#include "layers/position/rope_frequencies.h"

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
      {"norm.placement", "post normalises the sum behind each sub-layer, and residual: parallel has only one; use pre",
       [](const Place& p) {
         return p.model.residual == Residual::parallel && p.layer.norm.placement == NormPlacement::post;
       }},
      {"mlp.kind", "residual: parallel adds the mixer and a feed-forward layer side by side; use one",
       [](const Place& p) { return p.model.residual == Residual::parallel && p.layer.mlp.kind == MlpKind::none; }},
      {"position.t5.max_distance", "position.t5.max_distance must exceed half of position.t5.buckets",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::t5 && position.t5.max_distance <= position.t5.buckets / 2;
       }},
      {"position.rope.dims", "position rope rotates pairs of features: the number must be even",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::rope && position.rope.dims.value_or(p.model.size_of_head()) % 2 != 0;
       }},
      {"position.rope.dims", "position.rope.dims is more than a head has",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::rope && position.rope.dims.value_or(0) > p.model.size_of_head();
       }},
      {"position.rope.dims", "rope.scaling: yarn and longrope scale the logits of all features of a head; leave it out",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return rope_logit_factor(position) != 1 &&
                position.rope.dims.value_or(p.model.size_of_head()) != p.model.size_of_head();
       }},
      {"position.rope.scaling", "dynamic divides by the number of rotated features less 2; use more, or another kind",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         return position.kind == Position::rope && position.rope.scaling.kind == RopeScaling::dynamic &&
                position.rope.dims.value_or(p.model.size_of_head()) <= 2;
       }},
      {"position.rope.scaling", "short_factors and long_factors of longrope are one number for each pair of features",
       [](const Place& p) {
         const PositionConfig& position = p.layer.position;
         if (position.kind != Position::rope || position.rope.scaling.kind != RopeScaling::longrope) return false;
         const auto pairs = static_cast<size_t>(position.rope.dims.value_or(p.model.size_of_head()) / 2);
         const LongropeScaling& longrope = position.rope.scaling.longrope;
         return longrope.short_factors.size() != pairs || longrope.long_factors.size() != pairs;
       }},
  };
  return rules;
}

std::vector<LayerConfig> ModelConfig::layer_configs() const {
  if (!resolved.empty()) return resolved;
  std::vector<LayerConfig> configs(static_cast<size_t>(layers), common_layer());
  for (const ConfigOverlay& overlay : layer_overrides) {
    for (const int64_t layer : overlay.layers) {
      const int64_t index = layer < 0 ? layer + layers : layer;
      configs[static_cast<size_t>(index)] = apply_overlay(configs[static_cast<size_t>(index)], overlay);
    }
  }
  return configs;
}

ModelConfig ModelConfig::as_seen_by(const LayerConfig& layer) const {
  ModelConfig seen = *this;
  static_cast<HeadsConfig&>(seen) = layer;
  static_cast<LayerNormConfig&>(seen.norm) = layer.norm;
  seen.mlp = layer.mlp;
  seen.position = layer.position;
  seen.attention = layer.attention;
  return seen;
}

namespace {

// Returns what the last override of a layer that names a key, or a section around it, calls it:
// "layer_overrides.0.mlp". Empty when no override of the layer does.
std::string named_by_override(const ModelConfig& model, int64_t index, const std::string& named) {
  for (size_t i = model.layer_overrides.size(); i-- > 0;) {
    const ConfigOverlay& overlay = model.layer_overrides[i];
    const auto covers = [&](int64_t layer) { return model.layer_index(layer) == index; };
    if (std::none_of(overlay.layers.begin(), overlay.layers.end(), covers)) continue;
    std::string key = named;
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
  return "";
}

// Returns the key that a broken rule of a layer points to: the rule's own, or, where an override has broken it, the key
// that the last such override names.
std::string place_of_fault(const ModelConfig& model, const Mechanism& mechanism, const CompositionRule& rule,
                           const Place& place) {
  const LayerConfig base = model.common_layer();
  const bool same_kind = model.attention.mechanism.kind == mechanism.kind;
  if (same_kind && rule.refused({model, base, base.attention.mechanism.options, place.index})) return rule.key;
  const std::string named = named_by_override(model, place.index, rule.key);
  return named.empty() ? rule.key : named;
}

RuleFault fault_of(const ModelConfig& model, const Mechanism& mechanism, const CompositionRule& rule,
                   const Place& place, const std::string& section) {
  const bool in_layers =
      mechanism.role != Role::stack && (!model.layer_overrides.empty() || mechanism.role == Role::memory);
  return {mechanism.role == Role::mixer ? place_of_fault(model, mechanism, rule, place) : join_key(section, rule.key),
          in_layers ? fmt::format("{} (layer {})", rule.message, place.index) : rule.message};
}

// Returns the key of an option of a layer that is at fault: the first of `keys` that an override of the layer names, or
// the model's own.
std::string faulty_key(const ModelConfig& model, int64_t index, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const std::string named = named_by_override(model, index, key);
    if (!named.empty()) return named;
  }
  return keys.front();
}

// Checks the heads of every layer, and that layers with shared biases of positions have equal ones.
void check_heads(const ModelConfig& model, ConfigChecker& c) {
  const std::vector<LayerConfig> layers = model.layer_configs();
  std::optional<int64_t> first;  // layer with the shared biases of position xl
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const LayerConfig& layer = layers[i];
    const std::string of_layer = model.layer_overrides.empty() ? "" : fmt::format(" (layer {})", i);
    c.require(layer.head_size.has_value() || model.width % layer.heads == 0,
              faulty_key(model, index, {"heads", "head_size"}),
              fmt::format("width {} is no multiple of {} heads; set head_size or other heads{}", model.width,
                          layer.heads, of_layer));
    const int64_t key_heads = layer.key_heads.value_or(layer.heads);
    c.require(layer.heads % key_heads == 0, faulty_key(model, index, {"key_heads", "heads"}),
              fmt::format("{} heads are no multiple of {} key heads{}", layer.heads, key_heads, of_layer));
    if (layer.position.kind != Position::xl || !layer.position.xl.share_biases) continue;
    if (!first) first = index;
    const auto size = [&](const LayerConfig& of) { return of.head_size.value_or(model.width / of.heads); };
    const LayerConfig& other = layers[static_cast<size_t>(*first)];
    c.require(layer.heads == other.heads && size(layer) == size(other),
              faulty_key(model, index, {"heads", "head_size", "position.xl.share_biases"}),
              fmt::format("layer {} has {} heads of {} features, layer {} has {} of {}, and both share the biases of "
                          "position xl; set position.xl.share_biases to false, or equal heads",
                          i, layer.heads, size(layer), *first, other.heads, size(other)));
  }
}

}  // namespace

std::optional<RuleFault> find_rule_fault(const ModelConfig& model, std::span<const CompositionRule> Mechanism::*rules) {
  std::optional<RuleFault> fault;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string& section) {
    for (const CompositionRule& rule : mechanism.*rules) {
      if (!fault && rule.refused(place)) fault = fault_of(model, mechanism, rule, place, section);
    }
  });
  return fault;
}

void ModelConfig::check(ConfigChecker& c) const {
  const auto require_layers = [&](const std::vector<int64_t>& listed, const std::string& key) {
    c.require(!listed.empty(), key,
              "names no layer, so that the entry has no effect; list its layers, or leave it out");
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
  check_heads(*this, c);
  for (size_t i = 0; i < memory.size(); ++i) require_layers(memory[i].layers, fmt::format("memory.{}.layers", i));

  Insertion insertion;
  visit_mechanisms(*this, [&](const Mechanism& mechanism, const Place& place, const std::string& section) {
    const auto require = [&](const CompositionRule& rule) {
      if (!rule.refused(place)) return;
      const RuleFault fault = fault_of(*this, mechanism, rule, place, section);
      c.require(false, fault.key, fault.message);
    };
    if (mechanism.role == Role::memory) {
      const std::optional<LocalAttention> local = local_attention_of(place);
      c.require(local && local->takes_memories, join_key(section, "layers"),
                fmt::format("layer {} has attention.kind {}, beside which no memory goes", place.index,
                            place.layer.attention.mechanism.kind));
    }
    const Insertion inserted = mechanism.insertion(place);
    const bool both = inserted.any() && insertion.any();
    const std::string inserting = !both ? ""
                                  : mechanism.role == Role::mixer
                                      ? faulty_key(*this, place.index, {"attention." + mechanism.kind})
                                      : join_key(section.empty() ? "stack" : section, mechanism.kind);
    c.require(
        !both || (inserted.period == insertion.period && inserted.ids == insertion.ids), inserting,
        fmt::format("{} inserts a token after every {} ({} with it), another mechanism or layer of the model "
                    "after every {} ({} with it); set them alike",
                    mechanism.kind, inserted.period, inserted.period + 1, insertion.period, insertion.period + 1));
    c.require(!both || inserted.predicted == insertion.predicted, inserting,
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
