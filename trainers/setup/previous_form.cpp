#include "trainers/setup/previous_form.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/config/yaml_text.h"
#include "trainers/setup/previous_settings.h"

namespace quire {

namespace {

PreviousValues layer_values(YamlPart& map) {
  std::vector<std::pair<std::string, std::string>> flat;
  for (const char* key : {"position", "attention"}) {
    if (YamlEntry* entry = map.find(key)) flatten_yaml(entry->value, key, flat);
  }
  return {flat.begin(), flat.end()};
}

class Converter {
 public:
  explicit Converter(const std::string& name) : name_(name) {}
  std::vector<std::string> changes;

  void whole(YamlPart& root) {
    if (YamlEntry* model = root.find("model"); model != nullptr && model->value.is_map) {
      of_model(model->value);
    }
    if (YamlEntry* evaluate = root.find("evaluate")) {
      if (YamlEntry* set = evaluate->value.find("set"))
        rename_previous_settings(set->value, {name_, base_, overrides_, changes});
    }
    if (YamlEntry* run = root.find("run")) {
      for (const PreviousKey& row : kPreviousKeys) {
        const std::vector<std::string> before = key_segments(row.before);
        if (row.change != KeyChange::removed || run->value.find(before[1]) == nullptr) continue;
        const YamlEntry removed = take_entry(run->value, before[1]);
        note(removed, fmt::format("{}: {} is left out: there is no such key any more", row.before, removed.value.text));
      }
      if (run->value.is_map && run->value.entries.empty()) take_entry(root, "run");
    }
  }

 private:
  [[noreturn]] void refuse(int line, const std::string& what) const {
    fail(ErrorKind::config, "{}:{}: {}; change it by hand", name_, line, what);
  }
  void note(const YamlEntry& entry, const std::string& text) {
    changes.push_back(entry.line > 0 ? fmt::format("line {}: {}", entry.line, text) : text);
  }

  // The map that holds the last part of a dotted key; nullptr when there is none.
  static YamlPart* holder(YamlPart& map, const std::vector<std::string>& key) {
    YamlPart* at = &map;
    for (size_t i = 0; i + 1 < key.size(); ++i) {
      YamlEntry* entry = at->find(key[i]);
      if (entry == nullptr || !entry->value.is_map) return nullptr;
      at = &entry->value;
    }
    return at->find(key.back()) == nullptr ? nullptr : at;
  }
  static void drop_empty(YamlPart& map, std::vector<std::string> key) {
    for (key.pop_back(); !key.empty(); key.pop_back()) {
      YamlPart* at = holder(map, key);
      if (at == nullptr || !at->find(key.back())->value.is_map || !at->find(key.back())->value.entries.empty()) return;
      YamlEntry& empty = *at->find(key.back());
      if (empty.value.end.find('#') != std::string::npos) refuse_comment(empty);
      const bool lines = empty.value.style == YamlPart::Style::block;
      if (lines && (empty.has_comment() || empty.between.find('#') != std::string::npos)) {
        empty.tail = empty.between.substr(1);
        empty.between = ": ";
        empty.value = {.text = "{}"};
        return;
      }
      take_entry(*at, key.back());
    }
  }
  [[noreturn]] static void refuse_comment(const YamlEntry& entry) {
    fail(ErrorKind::config, "line {}: a comment in {} has no place in the new form; move it", entry.line, entry.key);
  }
  // A section on one line gets lines of its own where an entry with comments or lines comes into it.
  static void give_lines(YamlEntry& section, int column) {
    const auto& entries = section.value.entries;
    const auto has_comment = [](const YamlEntry& entry) { return entry.has_comment(); };
    if (section.value.end.find('#') != std::string::npos || std::any_of(entries.begin(), entries.end(), has_comment)) {
      refuse_comment(section);
    }
    section.between = ":" + (section.tail.empty() ? "\n" : section.tail);
    section.tail.clear();
    section.value.style = YamlPart::Style::block;
    section.value.column = column + 2;
    for (YamlEntry& entry : section.value.entries) {
      entry.lead.clear();
      entry.tail = "\n";
      entry.column = column + 2;
    }
  }
  static void put(YamlPart& map, const std::string& dotted, YamlEntry entry, const YamlPart* beside, size_t index) {
    const std::vector<std::string> key = key_segments(dotted);
    YamlPart* at = &map;
    for (size_t i = 0; i + 1 < key.size(); ++i) {
      const bool lines = entry.has_comment() || entry.value.style == YamlPart::Style::block;
      const bool is_here = at == beside;
      YamlPart& section = section_of(*at, key[i], is_here ? index : at->entries.size());
      YamlEntry& of_section = *at->find(key[i]);
      if (lines && section.is_flow() && at->style == YamlPart::Style::block) give_lines(of_section, at->column);
      at = &of_section.value;
    }
    entry.key = key.back();
    entry.key_text = key.back();
    put_entry(*at, at == beside ? index : at->entries.size(), std::move(entry));
  }
  static void move(YamlPart& map, const std::string& before, const std::string& after) {
    const std::vector<std::string> key = key_segments(before);
    YamlPart& from = *holder(map, key);
    const auto index = static_cast<size_t>(from.find(key.back()) - from.entries.data());
    put(map, after, take_entry(from, key.back()), &from, index);
    drop_empty(map, key);
  }
  static void add(YamlPart& map, const std::string& after, const std::string& value) {
    put(map, after, yaml_entry("", value), nullptr, 0);
  }

  // Renames what a map of a layer gives. prefix: of the keys in messages. values: of the layer, with these applied.
  void layer(YamlPart& map, const std::string& prefix, const PreviousValues& values) {
    for (const PreviousKey& row : kPreviousKeys) {
      if (row.before.find(".N.") == std::string_view::npos && row.change != KeyChange::removed) {
        key(map, row, without_model(row.before), without_model(row.after), prefix, values);
      }
    }
  }

  void key(YamlPart& map, const PreviousKey& row, const std::string& before, const std::string& after,
           const std::string& prefix, const PreviousValues& values) {
    const std::vector<std::string> path = key_segments(before);
    YamlPart* from = holder(map, path);
    if (from == nullptr) return;
    YamlEntry& entry = *from->find(path.back());
    const bool is_section_now = entry.value.is_map && (row.change != KeyChange::none || after.starts_with(before));
    if (is_section_now) return;
    if (row.change == KeyChange::into_section) {
      note(entry, fmt::format("{}{} is {}{} now", prefix, before, prefix, after));
      YamlEntry kind = yaml_entry("kind", entry.value.text);
      entry.value = {.style = YamlPart::Style::flow, .is_map = true};
      entry.value.entries.push_back(std::move(kind));
      return;
    }
    if (!applies(row, values)) {
      const bool another = std::any_of(kPreviousKeys.begin(), kPreviousKeys.end(), [&](const PreviousKey& other) {
        return other.before == row.before && applies(other, values);
      });
      if (another) return;
      note(entry, fmt::format("{}{} is left out: it belongs to {}", prefix, before, chosen_for(row).second));
      take_entry(*from, path.back());
      drop_empty(map, path);
      return;
    }
    if (row.change == KeyChange::carries) return carries(map, row, path, prefix, values);
    const PreviousKey* switched = carries_beside(row);
    const bool alone = switched != nullptr && value_of(values, without_model(switched->before)) == "false";
    const std::string target = alone ? without_model(row.otherwise) : after;
    note(entry, fmt::format("{}{} is {}{} now", prefix, before, prefix, target));
    move(map, before, target);
  }

  void carries(YamlPart& map, const PreviousKey& row, const std::vector<std::string>& path, const std::string& prefix,
               const PreviousValues& values) {
    YamlPart& from = *holder(map, path);
    const YamlEntry taken = take_entry(from, path.back());
    const PreviousKey& number = number_beside(row);
    const std::string name = without_model(number.before);
    const bool again = taken.value.text == "true" && value_of(values, "was." + without_model(row.before)) == "false";
    if (again) refuse(taken.line, fmt::format("{}{} turns on again what was off", prefix, without_model(row.before)));
    if (taken.value.text == "true") {
      note(taken, fmt::format("{}{}: true is left out: {} says it", prefix, without_model(row.before), row.after));
      return drop_empty(map, path);
    }
    note(taken, fmt::format("{}{}: false is {}{}: 0 now", prefix, without_model(row.before), prefix,
                            without_model(row.after)));
    if (holder(map, key_segments(name)) == nullptr) {
      add(map, without_model(number.otherwise), value_of(values, name, std::string(number.number)));
    }
    add(map, without_model(row.after), "0");
  }

  void of_model(YamlPart& model) {
    base_ = layer_values(model);
    const YamlEntry* layers = model.find("layers");
    layer_count_ = layers == nullptr ? ModelConfig{}.layers : std::atoll(layers->value.text.c_str());
    base_.try_emplace("position", std::string(name_in_config(PositionConfig{}.kind)));
    base_.try_emplace("attention.kind", std::string(mechanisms(Role::mixer).front()->kind));
    layer(model, "model.", base_);
    if (YamlEntry* memory = model.find("memory")) {
      for (YamlEntry& item : memory->value.entries) memory_entry(item.value);
    }
    if (YamlEntry* overrides = model.find("layer_overrides")) {
      for (size_t i = 0; i < overrides->value.entries.size(); ++i) {
        override_entry(overrides->value.entries[i].value, fmt::format("model.layer_overrides.{}.", i));
      }
    }
  }

  void memory_entry(YamlPart& item) {
    YamlEntry* kind = item.find("kind");
    for (const PreviousKey& row : kPreviousKeys) {
      if (row.kind.empty() || kind == nullptr || kind->value.text != row.kind) continue;
      constexpr size_t kAbove = std::string_view("model.memory.N.").size();
      key(item, row, std::string(row.before.substr(kAbove)), std::string(row.after.substr(kAbove)), "model.memory.N.",
          {});
      kind = item.find("kind");
    }
  }

  // Returns the values that another kind had from the layer before, and would lose, as (new name, value).
  static std::vector<std::pair<std::string, std::string>> inherited(const PreviousValues& before,
                                                                    const PreviousValues& given,
                                                                    const PreviousValues& after) {
    std::vector<std::pair<std::string, std::string>> added;
    for (const PreviousKey& row : kPreviousKeys) {
      const auto [chooses, kind] = is_of_layer(row) ? chosen_for(row) : std::pair<std::string, std::string>{};
      if (chooses.empty() || !applies(row, after) || value_of(before, chooses) == kind) continue;
      for (const auto& [name, value] : before) {
        const std::string old = without_model(row.before);
        if (!is_below(name, old) || given.count(name) != 0 || value == "none") continue;
        const std::string key = without_model(row.after) + name.substr(old.size());
        const bool twice = std::any_of(added.begin(), added.end(), [&](const auto& pair) { return pair.first == key; });
        if (!twice) added.emplace_back(key, value);
      }
    }
    return added;
  }

  void override_entry(YamlPart& item, const std::string& prefix) {
    const YamlEntry* layers = item.find("layers");
    const PreviousValues given = layer_values(item);
    std::vector<int64_t> numbers;
    if (layers != nullptr) {
      for (const YamlEntry& number : layers->value.entries) {
        const int64_t index = std::atoll(number.value.text.c_str());
        numbers.push_back(index < 0 ? index + layer_count_ : index);
      }
    }
    std::optional<std::vector<std::pair<std::string, std::string>>> added;
    PreviousValues values;
    for (const int64_t number : numbers) {
      const PreviousValues before = layers_.try_emplace(number, base_).first->second;
      values = before;
      const std::string kind = value_of(given, "attention.kind", value_of(before, "attention.kind"));
      if (kind != value_of(before, "attention.kind")) {
        std::erase_if(values, [&](const auto& pair) { return is_below(pair.first, "attention." + kind); });
      }
      for (const auto& [name, value] : values) {
        if (given.count(name) != 0) values["was." + name] = value;
      }
      for (const auto& [name, value] : given) values[name] = value;
      auto more = inherited(before, given, values);
      if (added && *added != more) {
        refuse(layers->line, prefix + "layers: other overrides have made these layers different");
      }
      added = std::move(more);
      layers_[number] = values;
    }
    layer(item, prefix, values);
    overrides_.push_back(values);
    for (const auto& [name, value] : added.value_or(std::vector<std::pair<std::string, std::string>>{})) {
      add(item, name, value);
      changes.push_back(
          fmt::format("{}{}: {} is said, which another kind does not take from the model", prefix, name, value));
    }
  }

  std::string name_;
  PreviousValues base_;
  std::map<int64_t, PreviousValues> layers_;
  int64_t layer_count_ = 0;
  std::vector<PreviousValues> overrides_;
};

}  // namespace

std::optional<UpgradedText> upgraded_configuration(const std::string& text, const std::string& name) {
  if (!holds_previous_key(parse_yaml(text, name), "")) return std::nullopt;
  YamlPart root = read_yaml_text(text, name, {"run", "model", "evaluate"});
  Converter converter(name);
  converter.whole(root);
  if (converter.changes.empty()) return std::nullopt;
  UpgradedText upgraded{write_yaml_text(root), std::move(converter.changes)};
  return upgraded;
}

RunConfig read_written_config(const std::string& text, const std::string& name, const std::string& folder) {
  const bool saved = text.starts_with(kSavedConfiguration);
  const std::optional<UpgradedText> upgraded = upgraded_configuration(text, name);
  return read_config<RunConfig>(parse_yaml(upgraded ? upgraded->text : text, name, folder), saved ? name : "");
}

}  // namespace quire
