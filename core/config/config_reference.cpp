// The reference page of all keys, as Markdown.
#include <algorithm>

#include "core/check.h"
#include "core/config/config.h"

namespace quire {

namespace {

// Escapes pipes, which end a table cell even inside code.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(const std::string& text) {
  return text.empty() ? "" : fmt::format("`{}`", cell(text));
}

constexpr size_t kLongestTable = 30;  // keys

// Keys of one section, such as `model.attention`, or its parts where they are many.
struct KeySection {
  std::string name;
  std::vector<ConfigKey> keys;
  std::vector<KeySection> parts;
};

KeySection section_of(const std::string& name, const std::vector<ConfigKey>& keys) {
  KeySection section{.name = name, .keys = {}, .parts = {}};
  if (!name.empty() && keys.size() <= kLongestTable) {
    section.keys = keys;
    return section;
  }
  std::vector<std::pair<std::string, std::vector<ConfigKey>>> groups;
  for (const ConfigKey& key : keys) {
    const size_t end = key.key.find('.', name.empty() ? 0 : name.size() + 1);
    const std::string group = key.key.substr(0, end);
    if (groups.empty() || groups.back().first != group) groups.emplace_back(group, std::vector<ConfigKey>{});
    groups.back().second.push_back(key);
  }
  for (const auto& [group, of_group] : groups) {
    if (of_group.size() == 1 && !name.empty()) {
      section.keys.push_back(of_group.front());
    } else {
      section.parts.push_back(section_of(group, of_group));
    }
  }
  return section;
}

std::string row_of(const ConfigKey& key) {
  std::string values = cell(key.type);
  if (!key.range.empty()) values += ", " + key.range;
  if (!key.unit.empty()) values += ", in " + key.unit;
  std::string meaning = cell(key.help);
  for (const ConfigChoice& choice : key.choices) {
    if (!choice.help.empty()) meaning += fmt::format("<br>{}: {}", code(choice.name), cell(choice.help));
  }
  std::string change = key.resumable ? "on resume" : key.sizes_state ? "on resume with --drop-state" : "";
  if (key.at_evaluation) change += change.empty() ? "at evaluation" : ", at evaluation";
  return fmt::format("| {} | {} | {} | {} | {} |\n", code(key.key), values,
                     key.required ? "required" : code(key.default_value), change, meaning);
}

std::string tables_of(const KeySection& section, const std::string& heading) {
  std::string text = fmt::format("\n{} {}\n", heading, section.name);
  if (!section.keys.empty()) text += "\n| key | values | default | may change | meaning |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : section.keys) text += row_of(key);
  for (const KeySection& part : section.parts) text += tables_of(part, heading + "#");
  return text;
}

// Pages link to a heading by its letters.
std::string contents_of(const KeySection& section, const std::string& indent) {
  std::string anchor = section.name;
  std::erase(anchor, '.');
  std::string text = fmt::format("{}- [{}](#{})\n", indent, section.name, anchor);
  for (const KeySection& part : section.parts) text += contents_of(part, indent + "  ");
  return text;
}

}  // namespace

std::string config_keys_as_markdown(const std::vector<ConfigKey>& keys) {
  const KeySection whole = section_of("", keys);
  std::string text;
  for (const KeySection& section : whole.parts) text += contents_of(section, "");
  for (const KeySection& section : whole.parts) text += tables_of(section, "##");
  std::string at_evaluation;
  for (const ConfigKey& key : keys) {
    const std::string line = fmt::format("- {}\n", code(key.key));
    // Several kinds may have an option of the same name.
    if (key.at_evaluation && at_evaluation.find(line) == std::string::npos) at_evaluation += line;
  }
  if (at_evaluation.empty()) return text;
  return text +
         "\n## Keys that may differ at evaluation\n\nThey change what a model sees and leave its weights as they are. "
         "In `model.layer_overrides` they may differ, too.\n\n" +
         at_evaluation;
}

std::string describe_replaced_key(const std::vector<ReplacedKey>& replaced, std::string_view key,
                                  std::string_view overlay) {
  std::string pattern(overlay);
  for (int i = 0; i < 2; ++i) pattern.resize(pattern.find('.') == std::string::npos ? 0 : pattern.rfind('.'));
  if (!overlay.empty()) key.remove_prefix(std::min(key.size(), overlay.size() + 1));
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    const std::string_view part = key.substr(begin, end - begin);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    pattern = join_key(pattern, is_index ? "N" : part);
    begin = end + 1;
  }
  std::string names;
  bool known = false;
  for (const ReplacedKey& row : replaced) {
    if (row.before != pattern) continue;
    known = true;
    if (row.after.empty()) continue;
    names += fmt::format("{}{}{}", names.empty() ? "" : " or ", row.after,
                         row.unit.empty() ? "" : fmt::format(" ({})", row.unit));
  }
  if (!known) return "";
  const std::string now = names.empty() ? "there is no such key any more" : fmt::format("it is {} now", names);
  return fmt::format("is a key of the previous version; {}. `quire config --upgrade FILE` rewrites a file", now);
}

std::string replaced_keys_as_markdown(const std::vector<ReplacedKey>& replaced) {
  std::string text =
      "\n## Keys of the previous version\n\nFiles with these keys are refused; `quire config --upgrade FILE` rewrites "
      "them and keeps their comments. Runs and checkpoints of the previous version are read as they are.\n\n"
      "| key | now | unit |\n|---|---|---|\n";
  for (const ReplacedKey& row : replaced) {
    text += fmt::format("| {} | {} | {} |\n", code(std::string(row.before)),
                        row.after.empty() ? "left out" : code(std::string(row.after)), row.unit);
  }
  return text;
}

}  // namespace quire
