#include "core/config/yaml_text.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

// The lines of `text`, moved by `shift` columns. first_too: the first one as well.
std::string shifted(const std::string& text, int shift, bool first_too) {
  if (shift == 0) return text;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string line = text.substr(at, end - at);
    const bool empty = line.find_first_not_of(" \r\n") == std::string::npos;
    if ((at > 0 || first_too) && !empty) {
      const size_t spaces = line.find_first_not_of(' ');
      if (shift > 0) line.insert(0, static_cast<size_t>(shift), ' ');
      if (shift < 0) line.erase(0, std::min(spaces, static_cast<size_t>(-shift)));
    }
    out += line;
    at = end;
  }
  return out;
}

void write_flow(const YamlPart& part, std::string& out) {
  out += part.is_map ? '{' : '[';
  for (size_t i = 0; i < part.entries.size(); ++i) {
    const YamlEntry& entry = part.entries[i];
    out += entry.lead + entry.key_text + entry.between;
    if (entry.value.is_flow()) {
      write_flow(entry.value, out);
    } else {
      out += entry.value.text;
    }
    out += entry.tail;
    if (i + 1 < part.entries.size()) out += ',';
  }
  out += part.end;
  out += part.is_map ? '}' : ']';
}

void write_block(const YamlPart& part, int indent, bool inline_first, std::string& out) {
  for (size_t i = 0; i < part.entries.size(); ++i) {
    const YamlEntry& entry = part.entries[i];
    const int shift = indent - entry.column;
    const bool is_inline = inline_first && i == 0;
    out += is_inline ? "" : shifted(entry.lead, shift, true) + std::string(static_cast<size_t>(indent), ' ');
    out += entry.key_text + entry.between;
    if (entry.value.style == YamlPart::Style::block) {
      const bool goes_on = entry.between.find('\n') == std::string::npos;  // "- key: value"
      write_block(entry.value, indent + entry.value.column - entry.column, goes_on, out);
      continue;
    }
    std::string value = entry.value.text;
    if (entry.value.is_flow()) write_flow(entry.value, value);
    out += shifted(value, shift, false) + shifted(entry.tail, shift, false);
  }
}

}  // namespace

YamlEntry* YamlPart::find(std::string_view key) {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const YamlEntry& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::string write_yaml_text(const YamlPart& part) {
  if (part.is_text()) return part.text;
  std::string out = part.text;
  if (part.is_flow()) {
    write_flow(part, out);
    out.pop_back();  // the end of the text holds it
    return out;
  }
  write_block(part, part.column, false, out);
  return out + part.end;
}

YamlEntry take_entry(YamlPart& map, std::string_view key) {
  const auto at = static_cast<size_t>(map.find(key) - map.entries.data());
  YamlEntry taken = std::move(map.entries[at]);
  map.entries.erase(map.entries.begin() + static_cast<std::ptrdiff_t>(at));
  if (!map.is_flow()) return taken;
  // A comment stays where it stands.
  const bool comment = taken.lead.find('#') != std::string::npos;
  std::string& behind = at < map.entries.size() ? map.entries[at].lead : map.end;
  const bool another = behind.find('#') != std::string::npos;
  if (comment) behind = taken.lead + (another ? behind : "");
  if (!comment && at == 0 && at < map.entries.size() && !another) behind = taken.lead;
  if (comment) taken.lead.clear();
  return taken;
}

void put_entry(YamlPart& map, size_t index, YamlEntry entry) {
  const bool was_flow = entry.tail.find('\n') == std::string::npos && entry.value.style != YamlPart::Style::block;
  if (map.is_flow()) {
    if (entry.has_comment() || entry.value.style == YamlPart::Style::block) {
      fail(ErrorKind::config,
           "line {}: {} moves into a section on one line, where its comment has no place; move the "
           "comment",
           entry.line, entry.key);
    }
    entry.lead = index == 0 ? "" : " ";
    entry.tail = "";
    if (index == 0 && !map.entries.empty() && map.entries.front().lead.find('\n') == std::string::npos) {
      map.entries.front().lead = " ";
    }
    if (index == map.entries.size() && map.end.find(',') != std::string::npos) map.end.erase(map.end.find(','), 1);
  } else {
    if (was_flow) {
      const auto comment = [](const std::string& text) { return text.find('#') == std::string::npos ? "" : text; };
      entry.lead = comment(entry.lead);
      entry.tail = comment(entry.tail) + "\n";
      if (entry.lead.empty()) entry.column = map.column;
    } else if (entry.tail.empty() && entry.value.style != YamlPart::Style::block) {
      entry.tail = "\n";
    }
    // The last line of a text may lack its end.
    if (index > 0) {
      YamlEntry& before = map.entries[index - 1];
      if (before.value.style != YamlPart::Style::block && before.tail.empty()) before.tail = "\n";
    }
  }
  map.entries.insert(map.entries.begin() + static_cast<std::ptrdiff_t>(index), std::move(entry));
}

YamlEntry yaml_entry(std::string key, std::string value) {
  YamlEntry entry{.key = key, .key_text = std::move(key), .between = ": "};
  entry.value.text = std::move(value);
  return entry;
}

YamlPart& section_of(YamlPart& map, const std::string& key, size_t index) {
  if (YamlEntry* found = map.find(key)) return found->value;
  YamlEntry made = yaml_entry(key, "");
  made.value = {.style = map.style, .is_map = true};
  if (map.is_flow()) {
    made.value.text = "";
    put_entry(map, index, std::move(made));
  } else {
    made.column = map.column;
    made.value.column = map.column + 2;
    made.between = ":\n";
    map.entries.insert(map.entries.begin() + static_cast<std::ptrdiff_t>(index), std::move(made));
  }
  return map.entries[index].value;
}

void flatten_yaml(const YamlPart& part, const std::string& key, std::vector<std::pair<std::string, std::string>>& out) {
  if (!part.is_map) {
    std::string text = part.text;
    if (part.is_flow()) write_flow(part, text);
    out.emplace_back(key, text);
    return;
  }
  for (const YamlEntry& entry : part.entries) flatten_yaml(entry.value, join_key(key, entry.key), out);
}

}  // namespace quire
