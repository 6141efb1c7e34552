// The reference page of all keys, as Markdown.
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

}  // namespace

std::string config_keys_as_markdown(const std::vector<ConfigKey>& keys) {
  std::string text;
  std::string section;
  for (const ConfigKey& key : keys) {
    const std::string first = key.key.substr(0, key.key.find('.'));
    if (first != section) {
      section = first;
      text += fmt::format("{}## {}\n\n| key | values | default | may change | meaning |\n|---|---|---|---|---|\n",
                          text.empty() ? "" : "\n", section);
    }
    std::string values = cell(key.type);
    if (!key.range.empty()) values += ", " + key.range;
    if (!key.unit.empty()) values += ", in " + key.unit;
    std::string meaning = cell(key.help);
    for (const ConfigChoice& choice : key.choices) {
      if (!choice.help.empty()) meaning += fmt::format("<br>{}: {}", code(choice.name), cell(choice.help));
    }
    std::string change = key.resumable ? "on resume" : key.sizes_state ? "on resume with --drop-state" : "";
    if (key.at_evaluation) change += change.empty() ? "at evaluation" : ", at evaluation";
    text += fmt::format("| {} | {} | {} | {} | {} |\n", code(key.key), values,
                        key.required ? "required" : code(key.default_value), change, meaning);
  }
  std::string at_evaluation;
  for (const ConfigKey& key : keys) {
    if (key.at_evaluation) at_evaluation += fmt::format("- {}\n", code(key.key));
  }
  if (at_evaluation.empty()) return text;
  return text +
         "\n## Keys that may differ at evaluation\n\nThey change what a model sees and leave its weights as they are. "
         "In `model.layer_overrides` they may differ, too.\n\n" +
         at_evaluation;
}

}  // namespace quire
