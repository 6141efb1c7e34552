// The two kinds of fields that keep part of the tree for later: settings (evaluate.set) and overlays (layer_overrides).
#include <algorithm>
#include <unordered_set>

#include "core/check.h"
#include "core/config/config.h"

namespace quire {

namespace {

void flatten(const ConfigNode& node, const std::string& key, const ValueContext& context, ConfigSettings& out,
             std::unordered_set<std::string>& given) {
  for (const ConfigEntry& entry : node.entries) {
    const std::string path = join_key(key, entry.key);
    if (entry.value.kind == ConfigNode::Kind::map && !entry.value.entries.empty()) {
      flatten(entry.value, path, context, out, given);
      continue;
    }
    if (!given.insert(path).second) config_error(entry.key_location, join_key(context.key, path), "duplicate key");
    out.emplace_back(path, flow_yaml(entry.value));
  }
}

constexpr std::string_view kLayers = "layers";

// Removes the keys that reading has left out: the options of a kind that an override has replaced.
void keep_known(ConfigNode& changes, const ConfigNode& known) {
  if (changes.kind != ConfigNode::Kind::map || known.kind != ConfigNode::Kind::map) return;
  std::erase_if(changes.entries, [&](const ConfigEntry& change) { return known.find(change.key) == nullptr; });
  for (ConfigEntry& change : changes.entries) keep_known(change.value, known.find(change.key)->value);
}

}  // namespace

std::string SettingsRef::type() const {
  return "section of dotted keys";
}

void SettingsRef::read(const ConfigNode& node, const ValueContext& context) const {
  if (node.kind != ConfigNode::Kind::map && node.kind != ConfigNode::Kind::null) {
    config_error(node.location, context.key, "expects a section of 'key: value' lines, got " + node.describe());
  }
  ConfigSettings settings;
  std::unordered_set<std::string> given;
  flatten(node, "", context, settings, given);
  value_ = std::move(settings);
}

ConfigNode SettingsRef::write() const {
  ConfigNode node = ConfigNode::map();
  for (const auto& [key, text] : value_) {
    node.add(key, parse_yaml(fmt::format("v: {}\n", text), key).entries.front().value);
  }
  return node;
}

std::vector<std::string> settings_as_overrides(const ConfigSettings& settings) {
  std::vector<std::string> overrides;
  for (const auto& [key, text] : settings) overrides.push_back(fmt::format("{}={}", key, text));
  return overrides;
}

std::string OverlaysRef::type() const {
  return "list of {layers: [...], key: value, ...}";
}

void OverlaysRef::read(const ConfigNode& node, const ValueContext& context) const {
  expect_list(node, context);
  std::vector<ConfigOverlay> overlays;
  const ConfigNode unchanged = write_config(prototype_);
  for (const ConfigEntry& entry : node.entries) {
    ConfigOverlay overlay{{}, entry.value, join_key(context.key, std::to_string(overlays.size()))};
    const ConfigNode* layers = entry.value.at(kLayers);
    if (entry.value.kind != ConfigNode::Kind::map || layers == nullptr) {
      config_error(entry.value.location, overlay.key, "expects {layers: [0, 1], key: value, ...}");
    }
    read_field(*layers, {join_key(overlay.key, kLayers), {}}, overlay.layers);
    std::erase_if(overlay.changes.entries, [](const ConfigEntry& change) { return change.key == kLayers; });
    read_config(prototype_, overlay.changes, overlay.key, ReadMode::keys, "", context.replaced);
    keep_known(overlay.changes, write_config(prototype_));
    // Every entry is checked against the same prototype.
    read_config(prototype_, unchanged, overlay.key, ReadMode::keys);
    overlays.push_back(std::move(overlay));
  }
  value_ = std::move(overlays);
}

ConfigNode OverlaysRef::write() const {
  ConfigNode node = ConfigNode::list();
  for (const ConfigOverlay& overlay : value_) {
    ConfigNode entry = ConfigNode::map();
    entry.add(std::string(kLayers), write_field(overlay.layers));
    for (const ConfigEntry& change : overlay.changes.entries) entry.add(change.key, change.value);
    node.add({}, std::move(entry));
  }
  return node;
}

}  // namespace quire
