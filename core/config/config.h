// Typed configuration: one listing per struct drives parsing, validation, overrides, dumping and help.
//
//   struct DataConfig {
//     int64_t rows = 8;
//     CacheConfig cache;                  // a struct of the same form
//     std::vector<MemoryConfig> memory;   // a list of such structs
//     template <class Visitor> void fields(Visitor& v) {
//       v.field("rows", rows, {.help = "...", .unit = "rows", .min = 1});
//       v.section("cache", cache, "...");
//       v.list("memory", memory, "...");
//     }
//     void check(ConfigChecker& c) const;  // optional: contradictions between fields
//   };
//   const RunConfig config = load_config<RunConfig>("run.yaml", {"data.rows=16"});
//
// Keys that a text does not mention keep the values that the struct had before, so parsing over an existing value is an
// overlay.
#pragma once

#include "core/config/config_value.h"
#include "core/config/config_visitor.h"

namespace quire {

enum class ReadMode {
  complete,  // required keys must be present, and the checks of all structs run
  overlay,   // required keys may be missing
  keys,      // like overlay, but only names, types and ranges are checked
};
// Parses `node` over `value`. `key` is the dotted name of `value` for messages. `written` names a file that quire
// wrote: keys in it are ignored where an override has made them inapplicable or where they give the default.
// `replaced` holds, for an entry of an overlay list, the keys of the whole configuration that have other names now.
void read_config(const ConfigStruct& value, const ConfigNode& node, const std::string& key, ReadMode mode,
                 const std::string& written = "", const std::vector<ReplacedKey>* replaced = nullptr);

template <ConfigStructType T>
T read_config(const ConfigNode& node, const std::string& written = "") {
  T value{};
  read_config(StructRef<T>(value), node, "", ReadMode::complete, written);
  return value;
}

template <ConfigStructType T>
T load_config(const std::string& path, const std::vector<std::string>& overrides = {}) {
  bool saved = false;
  ConfigNode root = load_yaml(path, &saved);
  for (const std::string& text : overrides) apply_override(root, text);
  return read_config<T>(root, saved ? path : "");
}

// Parses a text. Messages name it `name`. Relative paths in it stay as they are.
template <ConfigStructType T>
T parse_config(std::string_view text, const std::string& name, const std::vector<std::string>& overrides = {}) {
  ConfigNode root = parse_yaml(text, name);
  for (const std::string& override_text : overrides) apply_override(root, override_text);
  return read_config<T>(root);
}

// Applies an entry of an overlay list: only the keys that the entry gives change.
template <ConfigStructType T>
T apply_overlay(T base, const ConfigOverlay& overlay) {
  read_config(StructRef<T>(base), overlay.changes, overlay.key, ReadMode::overlay);
  return base;
}

// Returns the tree of every key (or, when minimal, of those that differ from the defaults), for write_yaml.
ConfigNode write_config(const ConfigStruct& value);
ConfigNode write_config_minimal(const ConfigStruct& value, const ConfigStruct& defaults);

template <ConfigStructType T>
std::string dump_config(T value) {
  return write_yaml(write_config(StructRef<T>(value)));
}
// Returns the same tree as a text that load_config() recognises as written by quire.
template <ConfigStructType T>
std::string dump_saved_config(T value) {
  return saved_configuration(dump_config(std::move(value)));
}
template <ConfigStructType T>
std::string dump_config_minimal(T value) {
  T defaults{};
  return write_yaml(write_config_minimal(StructRef<T>(value), StructRef<T>(defaults)));
}

// Returns the configuration with overrides applied, as for --resume and evaluate.set.
template <ConfigStructType T>
T with_overrides(const T& value, const std::vector<std::string>& overrides,
                 const std::string& source = "command line") {
  const ConfigNode root = overridden_tree(dump_config(value), overrides, source);
  return read_config<T>(root, root.location.file);
}

std::vector<std::string> settings_as_overrides(const ConfigSettings& settings);  // "key=value"

struct ConfigDifference {
  std::string key;     // dotted
  std::string before;  // as YAML; empty when only one configuration has the key, as in a longer list
  std::string after;
  bool resumable = false;
  bool at_evaluation = false;  // may differ at evaluation
  bool sizes_state = false;
};
std::vector<ConfigDifference> diff_configs(const ConfigStruct& before, const ConfigStruct& after);
template <ConfigStructType T>
std::vector<ConfigDifference> diff_configs(T before, T after) {
  return diff_configs(StructRef<T>(before), StructRef<T>(after));
}
// Throws Error(config) that names every changed key that is not resumable. With drop_state, keys that only change the
// size of carried state may change too.
void require_resumable(const std::vector<ConfigDifference>& differences, bool drop_state = false);

// A key with its value.
struct ConfigSetting {
  std::string key;    // dotted
  std::string value;  // as YAML
  bool resumable = false;
  bool at_evaluation = false;
  bool sizes_state = false;
};
std::vector<ConfigSetting> list_settings(const ConfigStruct& value);

struct ConfigKey {
  std::string key;  // dotted; N stands for the index in a list
  std::string type;
  std::string default_value;  // as YAML; empty when required
  std::string range;          // "at least 1", "0 to 1", empty
  std::string unit;
  std::string help;
  std::string meant;  // other words for the key, separated by spaces
  bool required = false;
  bool resumable = false;
  bool at_evaluation = false;
  bool sizes_state = false;
  std::vector<ConfigChoice> choices;  // empty unless the type is an enum
};
std::vector<ConfigKey> list_config_keys(const ConfigStruct& defaults);
template <ConfigStructType T>
std::vector<ConfigKey> list_config_keys() {
  T defaults{};
  return list_config_keys(StructRef<T>(defaults));
}
// Return one paragraph per key, for a terminal, and one table per section, for a page.
std::string format_config_keys(const std::vector<ConfigKey>& keys);
std::string config_keys_as_markdown(const std::vector<ConfigKey>& keys);
// Returns the message for a key that has another name now; empty when it has none. `overlay` is the key of the entry of
// an overlay list that it stands in: such entries have the keys of the section around the list.
std::string describe_replaced_key(const std::vector<ReplacedKey>& replaced, std::string_view key,
                                  std::string_view overlay = "");
std::string replaced_keys_as_markdown(const std::vector<ReplacedKey>& replaced);
// Returns the key that a misspelt one most likely means: the nearest one, else one with the same last part, else one
// whose help has the same words. Empty when there is none.
std::string nearest_config_key(const std::vector<ConfigKey>& keys, std::string_view misspelt);

}  // namespace quire
