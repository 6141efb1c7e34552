// The tree of a configuration text, with the place of every key and value. It keeps what YAML libraries drop: exact
// positions and whether a value was quoted. Duplicate keys are refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Where a key or value was written. line 0 or column 0 means that the file name says it all ("command line: a.b=1").
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
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is text, whatever it looks like
  ConfigLocation location;
  std::vector<ConfigEntry> entries;  // of a list (keys are empty) or a map, in written order

  const ConfigEntry* find(std::string_view key) const;  // nullptr when absent
  // Walks a dotted key; list entries by index. nullptr when absent.
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

// Reads one YAML document into a map. Syntax errors, duplicate keys, anchors, aliases, tags, further documents, control
// characters and invalid UTF-8 are Error(config) with the place.
ConfigNode parse_yaml(std::string_view text, const std::string& file, const std::string& folder = "");
// A regular file of at most 16 MiB. `saved` tells whether it is a configuration that quire wrote.
ConfigNode load_yaml(const std::string& path, bool* saved = nullptr);

// How a configuration that quire wrote with every key begins: its values are not choices that somebody made.
inline constexpr std::string_view kSavedConfiguration = "# Written by quire with every key, defaults included.\n";
// The text of a configuration that quire writes: that line, a checksum of the rest, the rest.
std::string saved_configuration(std::string_view yaml);
// True when somebody has changed such a text since. A text without a checksum counts as unchanged.
bool was_edited(std::string_view saved_text);
// Such a text with the checksum of what it says now.
std::string resealed(std::string_view saved_text);

// Applies "key.path=value", the value written as YAML. Lists are addressed by index and do not grow. Relative paths in
// the value are relative to the current directory, where the command was typed. `source` begins the messages.
void apply_override(ConfigNode& root, const std::string& override_text, const std::string& source = "command line");

// The tree of a valid configuration with overrides applied. A message about a key that stood there before names the
// overrides, which contradict it; `source` says where they come from.
ConfigNode overridden_tree(const std::string& yaml, const std::vector<std::string>& overrides,
                           const std::string& source);

// YAML of a map in block style; lists of plain values in flow style.
std::string write_yaml(const ConfigNode& map);
// YAML on one line.
std::string flow_yaml(const ConfigNode& node);

std::string join_key(std::string_view prefix, std::string_view key);  // "a" and "b": "a.b"; "" and "b": "b"

}  // namespace quire
