#include "core/config/config_node.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/check.h"

namespace quire {

namespace {

// Returns the index that `text` names in a list of `size` entries; -1 when it names none.
int64_t list_index(std::string_view text, size_t size) {
  int64_t index = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || end != text.data() + text.size() || index < 0) return -1;
  return index < static_cast<int64_t>(size) ? index : -1;
}

// Returns the length of the longest prefix of the path that is an existing key, or that of the first segment when no
// entry matches. (A key of evaluate.set may itself contain dots.)
size_t matching_prefix(const ConfigNode& map, std::string_view dotted, const ConfigEntry** found) {
  *found = nullptr;
  for (size_t length = dotted.size(); length != std::string_view::npos && length > 0;
       length = dotted.substr(0, length).rfind('.')) {
    *found = map.find(dotted.substr(0, length));
    if (*found != nullptr) return length;
  }
  return std::min(dotted.find('.'), dotted.size());
}

std::string_view after(std::string_view dotted, size_t length) {
  return length < dotted.size() ? dotted.substr(length + 1) : std::string_view{};
}

void set_at(ConfigNode& node, std::string_view dotted, ConfigNode value, const std::string& walked) {
  const ConfigLocation place = value.location;
  if (dotted.empty()) {
    node = std::move(value);
    return;
  }
  if (node.kind == ConfigNode::Kind::list) {
    const size_t length = std::min(dotted.find('.'), dotted.size());
    const int64_t index = list_index(dotted.substr(0, length), node.entries.size());
    if (index < 0) {
      fail(ErrorKind::config, "{}: {}: the list has {} entries and no entry '{}'; give the whole list to add one",
           place.to_string(), walked, node.entries.size(), dotted.substr(0, length));
    }
    set_at(node.entries[static_cast<size_t>(index)].value, after(dotted, length), std::move(value),
           join_key(walked, dotted.substr(0, length)));
    return;
  }
  if (node.kind == ConfigNode::Kind::null) {
    node.kind = ConfigNode::Kind::map;
    node.location = place;
  }
  if (node.kind == ConfigNode::Kind::scalar) {
    fail(ErrorKind::config, "{}: {} is {}, not a section", place.to_string(), walked, node.describe());
  }
  const ConfigEntry* found = nullptr;
  const size_t length = matching_prefix(node, dotted, &found);
  const std::string key(dotted.substr(0, length));
  if (found == nullptr) {
    ConfigNode fresh;
    fresh.location = place;
    node.entries.push_back({key, place, std::move(fresh)});
    found = &node.entries.back();
  }
  ConfigEntry& entry = node.entries[static_cast<size_t>(found - node.entries.data())];
  if (length == dotted.size()) entry.key_location = place;
  set_at(entry.value, after(dotted, length), std::move(value), join_key(walked, key));
}

void relocate(ConfigNode& node, const ConfigLocation& place) {
  node.location = place;
  for (ConfigEntry& entry : node.entries) {
    entry.key_location = place;
    relocate(entry.value, place);
  }
}

// The user has not seen this text, so its lines and columns would mean nothing in a message.
void forget_columns(ConfigNode& node) {
  node.location.column = 0;
  for (ConfigEntry& entry : node.entries) {
    entry.key_location.column = 0;
    forget_columns(entry.value);
  }
}

}  // namespace

std::string ConfigLocation::to_string() const {
  return line == 0 || column == 0 ? file : fmt::format("{}:{}:{}", file, line, column);
}

const ConfigEntry* ConfigNode::find(std::string_view key) const {
  if (kind != Kind::map) return nullptr;
  for (const ConfigEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const ConfigNode* ConfigNode::at(std::string_view dotted) const {
  if (dotted.empty()) return this;
  if (kind == Kind::list) {
    const size_t length = std::min(dotted.find('.'), dotted.size());
    const int64_t index = list_index(dotted.substr(0, length), entries.size());
    return index < 0 ? nullptr : entries[static_cast<size_t>(index)].value.at(after(dotted, length));
  }
  const ConfigEntry* found = nullptr;
  const size_t length = matching_prefix(*this, dotted, &found);
  return found == nullptr ? nullptr : found->value.at(after(dotted, length));
}

std::string ConfigNode::describe() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::scalar: {
      size_t length = std::min<size_t>(text.size(), 60);
      while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) --length;
      const std::string shown = length == text.size() ? text : text.substr(0, length) + "...";
      return quoted ? fmt::format("the quoted text \"{}\"", shown) : fmt::format("'{}'", shown);
    }
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a section";
  }
  return "?";
}

ConfigNode ConfigNode::scalar(std::string text, bool quoted) {
  ConfigNode node;
  node.kind = Kind::scalar;
  node.text = std::move(text);
  node.quoted = quoted;
  return node;
}

ConfigNode ConfigNode::list() {
  ConfigNode node;
  node.kind = Kind::list;
  return node;
}

ConfigNode ConfigNode::map() {
  ConfigNode node;
  node.kind = Kind::map;
  return node;
}

void ConfigNode::add(std::string key, ConfigNode value) {
  ConfigLocation place = value.location;
  entries.push_back({std::move(key), std::move(place), std::move(value)});
}

void apply_override(ConfigNode& root, const std::string& override_text, const std::string& source) {
  const size_t equals = override_text.find('=');
  const std::string key = override_text.substr(0, equals);
  if (equals == std::string::npos || key.empty() || key.front() == '.' || key.back() == '.' ||
      key.find("..") != std::string::npos || key.find_first_of(" \t\n") != std::string::npos) {
    fail(ErrorKind::config, "{}: '{}' is not of the form key.path=value", source, override_text);
  }
  const std::string value_text = override_text.substr(equals + 1);
  if (value_text.find_first_not_of(" \t\n") == std::string::npos) {
    fail(ErrorKind::config, "{}: {}: no value after '='; write none for nothing and '\"\"' for empty text", source,
         override_text);
  }
  ConfigLocation place;
  place.file = source + ": " + override_text;
  place.folder = std::filesystem::current_path().string();
  // The value is read as the value of a key: it may then have any kind, and a second key or value is detected.
  ConfigNode wrapped = parse_yaml(fmt::format("v: {}\n", value_text), place.file);
  if (wrapped.entries.size() != 1) fail(ErrorKind::config, "{}: the value is not a single YAML value", place.file);
  ConfigNode value = std::move(wrapped.entries.front().value);
  relocate(value, place);
  set_at(root, key, std::move(value), "");
}

ConfigNode overridden_tree(const std::string& yaml, const std::vector<std::string>& overrides,
                           const std::string& source) {
  const std::string name =
      overrides.empty() ? "the saved configuration" : fmt::format("with {} ({})", fmt::join(overrides, " "), source);
  ConfigNode root = parse_yaml(yaml, name);
  forget_columns(root);
  for (const std::string& text : overrides) apply_override(root, text, source);
  return root;
}

std::string join_key(std::string_view prefix, std::string_view key) {
  if (prefix.empty()) return std::string(key);
  return fmt::format("{}.{}", prefix, key);
}

}  // namespace quire
