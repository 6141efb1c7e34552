#include "trainers/report/field_help.h"

#include <algorithm>
#include <functional>

namespace quire {

namespace {

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

// Calls use(part) for every component of a dotted name.
void for_each_part(std::string_view name, const std::function<void(std::string_view)>& use) {
  while (true) {
    const size_t end = std::min(name.find('.'), name.size());
    use(name.substr(0, end));
    if (end == name.size()) return;
    name.remove_prefix(end + 1);
  }
}

std::string_view without_spaces(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

}  // namespace

std::string field_pattern(std::string_view name) {
  std::string pattern;
  for_each_part(name, [&](std::string_view part) {
    if (!pattern.empty()) pattern += '.';
    pattern += is_number(part) ? std::string_view("N") : part;
  });
  return pattern;
}

std::string field_place(std::string_view name) {
  std::string place;
  std::string_view before;
  for_each_part(name, [&](std::string_view part) {
    if (is_number(part)) {
      // One of the blocks is a block.
      if (before.size() > 1 && before.ends_with('s')) before.remove_suffix(1);
      if (!place.empty()) place += ", ";
      place += std::string(before) + (before.empty() ? "" : " ") + std::string(part);
    }
    before = part;
  });
  return place;
}

std::map<std::string, std::string> field_help(std::string_view page, std::string_view heading) {
  std::map<std::string, std::string> help;
  const size_t begin = page.find("\n## " + std::string(heading) + "\n");
  if (begin == std::string_view::npos) return help;
  std::string_view section = page.substr(begin + 4);
  section = section.substr(0, section.find("\n## "));
  while (!section.empty()) {
    const size_t end = std::min(section.find('\n'), section.size());
    const std::string_view line = section.substr(0, end);
    section.remove_prefix(std::min(end + 1, section.size()));
    const size_t middle = line.find("` | ");
    if (!line.starts_with("| `") || middle == std::string_view::npos || !line.ends_with("|")) continue;
    std::string text(without_spaces(line.substr(middle + 4, line.size() - middle - 5)));
    text.erase(std::remove(text.begin(), text.end(), '`'), text.end());
    help.emplace(line.substr(3, middle - 3), std::move(text));
  }
  return help;
}

}  // namespace quire
