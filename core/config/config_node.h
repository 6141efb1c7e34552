// The tree of a configuration text, with the position of every key and value. It keeps what YAML libraries drop: exact
// positions and whether a value was quoted. Duplicate keys are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// The position of a key or value. A line or column of 0 means that `file` describes the whole place ("command line:
// a.b=1").
struct ConfigLocation {
  std::string file;
  std::string folder;  // relative paths are resolved against it; empty: they stay as they are
  int line = 0;        // from 1
  int column = 0;      // from 1

  std::string to_string() const;  // "run.yaml:3:7"
};

struct ConfigEntry;

struct ConfigNode {
  enum class Kind { null, scalar, list, map };

  Kind kind = Kind::null;
  std::string text;     // for a scalar
  bool quoted = false;  // a quoted scalar is text, even when it looks like a number
  ConfigLocation location;
  std::vector<ConfigEntry> entries;  // the entries of a list (with empty keys) or of a map, in written order

  const ConfigEntry* find(std::string_view key) const;  // nullptr when absent
  // Walks a dotted key; list entries are addressed by index. Returns nullptr when there is none.
  const ConfigNode* at(std::string_view dotted) const;
  std::string describe() const;  // for messages: "'abc'", "a list", "nothing"

  static ConfigNode scalar(std::string text, bool quoted = false);
  static ConfigNode list();
  static ConfigNode map();
  void add(std::string key, ConfigNode value);
};

struct ConfigEntry {
  std::string key;
  ConfigLocation key_location;
  ConfigNode value;
};

// Reads one YAML document into a map. Throws Error(config) with the place for syntax errors, duplicate keys, anchors,
// aliases, tags, further documents, control characters and invalid UTF-8.
ConfigNode parse_yaml(std::string_view text, const std::string& file, const std::string& folder = "");
// Reads a regular file of at most 16 MiB. `saved` receives whether quire wrote this configuration.
ConfigNode load_yaml(const std::string& path, bool* saved = nullptr);

// The first line of a configuration that quire wrote with every key. Its values are not choices that a user made.
inline constexpr std::string_view kSavedConfiguration = "# Written by quire with every key, defaults included.\n";
// Returns the text of a configuration that quire writes: the line above, a checksum of the rest, the rest.
std::string saved_configuration(std::string_view yaml);
// Returns true when such a text was changed after quire wrote it. A text without a checksum counts as unchanged.
bool was_edited(std::string_view saved_text);
// Such a text with the checksum of what it says now.
std::string resealed(std::string_view saved_text);

// Applies "key.path=value", with the value written as YAML. Lists are addressed by index and do not grow. Relative
// paths in the value are relative to the current directory, where the command was typed. Messages begin with `source`.
void apply_override(ConfigNode& root, const std::string& override_text, const std::string& source = "command line");

// Returns the tree of a valid configuration with overrides applied. A message about a key that the configuration
// already had names the overrides, which contradict it; `source` says where they come from.
ConfigNode overridden_tree(const std::string& yaml, const std::vector<std::string>& overrides,
                           const std::string& source);

// Returns YAML of a map in block style, with lists of plain values in flow style.
std::string write_yaml(const ConfigNode& map);
// Returns YAML on one line.
std::string flow_yaml(const ConfigNode& node);

std::string join_key(std::string_view prefix, std::string_view key);  // "a" and "b": "a.b"; "" and "b": "b"

}  // namespace quire
