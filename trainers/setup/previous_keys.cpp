#include "trainers/setup/previous_keys.h"

#include <algorithm>

namespace quire {

std::string without_model(std::string_view key) {
  return std::string(key.substr(std::string_view("model.").size()));
}

std::string value_of(const PreviousValues& values, const std::string& key, const std::string& otherwise) {
  const auto found = values.find(key);
  return found == values.end() ? otherwise : found->second;
}

bool is_below(std::string_view key, std::string_view section) {
  return key.starts_with(section) && (key.size() == section.size() || key[section.size()] == '.');
}

std::vector<std::string> key_segments(std::string_view key) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    parts.emplace_back(key.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::pair<std::string, std::string> chosen_for(const PreviousKey& row) {
  const std::vector<std::string> before = key_segments(row.before);
  const std::vector<std::string> after = key_segments(row.after);
  if (after.size() < 3 || row.change == KeyChange::into_section) return {};
  if (after[1] == "position") return {"position", after[2]};
  const bool moves = after[1] == "attention" && after.size() > 3 && before[2] != after[2];
  return moves ? std::pair<std::string, std::string>{"attention.kind", after[2]}
               : std::pair<std::string, std::string>{};
}

bool applies(const PreviousKey& row, const PreviousValues& values) {
  const auto [key, kind] = chosen_for(row);
  const auto found = values.find(key);
  return key.empty() || (found != values.end() && found->second == kind);
}

bool is_of_layer(const PreviousKey& row) {
  return row.before.starts_with("model.position") || row.before.starts_with("model.attention");
}

const PreviousKey& number_beside(const PreviousKey& row) {
  return *std::find_if(kPreviousKeys.begin(), kPreviousKeys.end(),
                       [&](const PreviousKey& other) { return other.after == row.after && !other.otherwise.empty(); });
}
const PreviousKey* carries_beside(const PreviousKey& number) {
  const auto found = std::find_if(kPreviousKeys.begin(), kPreviousKeys.end(), [&](const PreviousKey& other) {
    return other.after == number.after && other.change == KeyChange::carries;
  });
  return number.otherwise.empty() || found == kPreviousKeys.end() ? nullptr : &*found;
}

bool holds_previous_key(const ConfigNode& node, const std::string& key) {
  const auto whole = [](std::string name) {
    for (const std::string_view prefix : {"evaluate.set.", "model.layer_overrides.N."}) {
      const bool of_layer = prefix.starts_with("model.");
      if (name.starts_with(prefix)) name = (of_layer ? "model." : "") + name.substr(prefix.size());
    }
    return name;
  };
  for (size_t i = 0; i < node.entries.size(); ++i) {
    const ConfigEntry& entry = node.entries[i];
    std::string name = key;
    for (const std::string& part : key_segments(entry.key)) {
      const bool is_index = part.find_first_not_of("0123456789") == std::string::npos;  // also in a list
      name = join_key(name, is_index ? "N" : part);
    }
    const std::string known = whole(name);
    for (const PreviousKey& row : kPreviousKeys) {
      const bool is_section_now =
          row.change == KeyChange::into_section || row.change == KeyChange::carries || is_below(row.after, row.before);
      if (row.before == known && !(is_section_now && entry.value.kind == ConfigNode::Kind::map)) return true;
      // A dotted key of evaluate.set may name a part of a section that has moved.
      if (!is_section_now && is_below(known, row.before)) return true;
    }
    if (holds_previous_key(entry.value, name)) return true;
  }
  return false;
}

const std::vector<ReplacedKey>& replaced_keys() {
  static const std::vector<ReplacedKey> keys = [] {
    std::vector<ReplacedKey> all;
    for (const PreviousKey& row : kPreviousKeys) {
      all.push_back(row);
      // A key that meant two things has two names.
      if (!row.otherwise.empty()) all.push_back({row.before, row.otherwise, row.unit});
    }
    return all;
  }();
  return keys;
}

}  // namespace quire
