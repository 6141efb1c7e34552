#include "trainers/setup/previous_settings.h"

#include <fmt/format.h>

#include "core/check.h"

namespace quire {

namespace {

void rename(YamlPart& set, size_t at, const PreviousSettings& known) {
  YamlEntry& entry = set.entries[at];
  std::vector<std::string> numbers;
  std::vector<std::string> parts = key_segments(entry.key);
  for (std::string& part : parts) {
    if (part.find_first_not_of("0123456789") != std::string::npos) continue;
    numbers.push_back(part);
    part = "N";
  }
  std::string key = fmt::format("{}", fmt::join(parts, "."));
  constexpr std::string_view kOverride = "model.layer_overrides.N.";
  const bool of_override = key.starts_with(kOverride);
  if (of_override) key = "model." + key.substr(kOverride.size());
  const size_t number = of_override && !numbers.empty() ? std::stoul(numbers.front()) : 0;
  const PreviousValues& values = of_override && number < known.overrides.size() ? known.overrides[number] : known.base;
  const PreviousKey* row = nullptr;
  for (const PreviousKey& other : kPreviousKeys) {
    // A number or truth value that is a section now has the name of that section.
    const bool exact = is_below(other.after, other.before) || other.change != KeyChange::none;
    const bool same = exact ? key == other.before && !entry.value.is_map : is_below(key, other.before);
    if (other.change == KeyChange::into_section || !same || !applies(other, values)) continue;
    if (row == nullptr || other.before.size() > row->before.size()) row = &other;
  }
  if (row == nullptr) {
    const bool holds = entry.value.is_map && key.starts_with("model");
    if (holds)
      fail(ErrorKind::config, "{}:{}: evaluate.set: {} holds a section; change it by hand", known.name, entry.line,
           entry.key);
    return;
  }
  const PreviousKey* switched = carries_beside(*row);
  const bool alone = switched != nullptr && value_of(values, without_model(switched->before)) == "false";
  std::string after = std::string(alone ? row->otherwise : row->after) + key.substr(row->before.size());
  if (row->change == KeyChange::carries) {
    if (entry.value.text != "false")
      fail(ErrorKind::config, "{}:{}: evaluate.set: {} turns on what training had off; change it by hand", known.name,
           entry.line, entry.key);
    entry.value.text = "0";
  }
  if (of_override) after = fmt::format("model.layer_overrides.{}.{}", number, without_model(after));
  for (const std::string& one : numbers) {
    if (const size_t n = after.find(".N."); n != std::string::npos) after.replace(n + 1, 1, one);
  }
  known.changes.push_back(fmt::format("line {}: evaluate.set: {} is {} now", entry.line, entry.key, after));
  entry.key = after;
  entry.key_text = after;
}

}  // namespace

void rename_previous_settings(YamlPart& set, const PreviousSettings& known) {
  for (size_t i = 0; i < set.entries.size(); ++i) rename(set, i, known);
}

}  // namespace quire
