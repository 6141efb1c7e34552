// A YAML text in parts that can be moved, renamed and removed. Whatever is not changed keeps its layout and its
// comments.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"

namespace quire {

struct YamlEntry;

struct YamlPart {
  enum class Style { text, flow, block };

  Style style = Style::text;
  bool is_map = false;
  std::string text = {};                // of a scalar, or of a value that was not taken apart
  std::vector<YamlEntry> entries = {};  // of a map or list
  std::string end = {};                 // flow: before the closing bracket; of the whole text: behind the last entry
  int column = 0;                       // block: where the entries stand in the text that was read

  YamlEntry* find(std::string_view key);  // nullptr when absent
  bool is_flow() const { return style == Style::flow; }
  bool is_text() const { return style == Style::text; }
};

struct YamlEntry {
  std::string key = {};       // empty in a list
  std::string lead = {};      // block: the lines of comments before it; flow: what stands before the key
  std::string key_text = {};  // as it is written; "-" in a block list
  std::string between = {};   // from the key to the value
  YamlPart value = {};
  std::string tail = {};  // block: the rest of the line behind a value; flow: what stands before the comma
  int column = 0;         // block: where the key stands in the text that was read
  int line = 0;           // from 1; 0: it was added

  bool has_comment() const { return lead.find('#') != std::string::npos || tail.find('#') != std::string::npos; }
};

// Takes apart the maps and lists below the given keys of the top. Error(config) for a layout that it cannot take apart.
YamlPart read_yaml_text(std::string_view text, const std::string& name, const std::vector<std::string>& sections);
std::string write_yaml_text(const YamlPart& part);

// Removes the entry from the map and returns it.
YamlEntry take_entry(YamlPart& map, std::string_view key);
// Puts an entry before number `index`, in the style of the map. Error(config) where a comment would be lost.
void put_entry(YamlPart& map, size_t index, YamlEntry entry);
YamlEntry yaml_entry(std::string key, std::string value);
// Returns the section `key` of the map; makes it at `index` where it is missing.
YamlPart& section_of(YamlPart& map, const std::string& key, size_t index);
// Appends the keys below `part` (`key`.base, `key`.dims.x, ...) with the texts of their values.
void flatten_yaml(const YamlPart& part, const std::string& key, std::vector<std::pair<std::string, std::string>>& out);

}  // namespace quire
