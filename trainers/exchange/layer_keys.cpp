#include "trainers/exchange/layer_keys.h"

#include <cmath>

#include "core/json.h"
#include "layers/mixers/softmax_config.h"

namespace quire {

LayerKeys::LayerKeys(LayerConfig layer) {
  for (const ConfigSetting& setting : list_settings(StructRef<LayerConfig>(layer)))
    values_[setting.key] = setting.value;
}

std::string LayerKeys::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

nlohmann::json LayerKeys::json(const std::string& key) const {
  const std::string value = text(key);
  if (value.empty() || value == "none") return nullptr;
  nlohmann::json parsed = parse_json(value);
  return parsed.is_discarded() ? nlohmann::json(value) : parsed;
}

std::optional<double> LayerKeys::number(const std::string& key) const {
  const nlohmann::json value = json(key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

bool LayerKeys::flag(const std::string& key) const {
  return text(key) == "true";
}

namespace {

// Writes defaults that depend on other keys as values, and makes equal what is about speed alone.
LayerConfig spelled_out(const ModelConfig& model, LayerConfig layer) {
  layer.key_heads = layer.key_heads.value_or(layer.heads);
  layer.head_size = layer.head_size.value_or(model.width / layer.heads);
  if (layer.position.kind == Position::rope && !layer.position.rope.dims) layer.position.rope.dims = layer.head_size;
  if (layer.attention.mechanism.kind != "softmax") return layer;
  auto& softmax = layer.attention.mechanism.options.get<SoftmaxConfig>();
  softmax.implementation = AttentionImplementation::own;
  if (!softmax.scale && !softmax.qk_norm) softmax.scale = 1 / std::sqrt(static_cast<double>(*layer.head_size));
  return layer;
}

// The number of ids is no part of an architecture. A number may have been written and read in between.
bool is_same(const ConfigDifference& difference) {
  if (difference.key == "vocabulary") return true;  // stated beside
  const nlohmann::json before = parse_json(difference.before), after = parse_json(difference.after);
  if (!before.is_number() || !after.is_number()) return false;
  const auto a = before.get<double>(), b = after.get<double>();
  return std::abs(a - b) <= 1e-12 * std::abs(a);
}

template <typename T>
bool differ(const T& a, const T& b) {
  for (const ConfigDifference& difference : diff_configs(a, b)) {
    if (!is_same(difference)) return true;
  }
  return false;
}

}  // namespace

bool compute_the_same(const ModelConfig& a, const ModelConfig& b) {
  const std::vector<LayerConfig> first = a.layer_configs(), second = b.layer_configs();
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (differ(spelled_out(a, first[i]), spelled_out(b, second[i]))) return false;
  }
  // The parts of layers were compared above.
  ModelConfig rest = a;
  static_cast<HeadsConfig&>(rest) = b;
  static_cast<LayerNormConfig&>(rest.norm) = b.norm;
  rest.mlp = b.mlp;
  rest.position = b.position;
  rest.attention = b.attention;
  rest.layer_overrides = b.layer_overrides;
  rest.dropout = b.dropout;
  rest.initialization = b.initialization;
  rest.recompute = b.recompute;
  return !differ(rest, b);
}

}  // namespace quire
