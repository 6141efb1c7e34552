// Takes a YAML text apart.
#include "core/config/yaml_text.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {
    lines_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') lines_.push_back(i + 1);
    }
  }

  YamlPart top(const ConfigNode& root, const std::vector<std::string>& sections) const {
    if (root.entries.empty()) return {.style = YamlPart::Style::text, .text = std::string(text_)};
    const size_t begin = offset(root.location);
    if (text_[begin] == '{') {
      YamlPart part = flow(root);
      part.end += text_.substr(end_of_flow(begin) - 1);  // with the bracket
      part.text = text_.substr(0, begin);
      return part;
    }
    // Comments behind the last key belong to none.
    const size_t end = text_.back() == '\n' ? with_comments(text_.size(), 0) : text_.size();
    YamlPart part = block_map(root, 0, end, &sections);
    part.end = text_.substr(end);
    return part;
  }

 private:
  size_t offset(const ConfigLocation& place) const {
    return lines_.at(static_cast<size_t>(place.line) - 1) + static_cast<size_t>(place.column) - 1;
  }
  size_t line_start(size_t at) const { return *(std::upper_bound(lines_.begin(), lines_.end(), at) - 1); }
  size_t line_end(size_t at) const { return std::min(text_.find('\n', at), text_.size() - 1) + 1; }
  std::string part(size_t begin, size_t end) const { return std::string(text_.substr(begin, end - begin)); }
  [[noreturn]] void refuse(const ConfigLocation& place) const {
    fail(ErrorKind::config, "{}: quire cannot rewrite YAML that is laid out like this; write 'key: value' on one line",
         place.to_string());
  }

  size_t end_of_quotes(size_t begin) const {
    const char quote = text_[begin];
    size_t at = begin + 1;
    while (at < text_.size() && text_[at] != quote) at += text_[at] == '\\' && quote == '"' ? 2 : 1;
    return std::min(at + 1, text_.size());
  }
  bool begins_comment(size_t at) const {
    return text_[at] == '#' && (at == 0 || text_[at - 1] == ' ' || text_[at - 1] == '\n' || text_[at - 1] == '\t');
  }
  size_t end_of_flow(size_t begin) const {
    int depth = 0;
    for (size_t at = begin; at < text_.size();) {
      const char c = text_[at];
      if ((c == '"' || c == '\'') && std::string_view(" ,[{:\n").find(text_[at - 1]) != std::string_view::npos) {
        at = end_of_quotes(at);
        continue;
      }
      if (begins_comment(at)) {
        at = line_end(at);
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return at + 1;
      ++at;
    }
    return text_.size();
  }
  // Returns the end of a scalar on one line. With in_flow it also ends at a comma or bracket.
  size_t end_of_scalar(size_t begin, bool in_flow) const {
    if (text_[begin] == '"' || text_[begin] == '\'') return end_of_quotes(begin);
    size_t at = begin;
    while (at < text_.size() && text_[at] != '\n' && !begins_comment(at) &&
           !(in_flow && std::string_view(",]}").find(text_[at]) != std::string_view::npos)) {
      ++at;
    }
    while (at > begin && (text_[at - 1] == ' ' || text_[at - 1] == '\r')) --at;
    return at;
  }
  // Returns the offset behind a key.
  size_t end_of_key(const ConfigEntry& entry) const {
    const size_t begin = offset(entry.key_location);
    const bool quoted = text_[begin] == '"' || text_[begin] == '\'';
    return quoted ? end_of_quotes(begin) : begin + entry.key.size();
  }
  // Returns the offset behind the colon of a key.
  size_t behind_colon(const ConfigEntry& entry) const {
    size_t at = end_of_key(entry);
    while (at < text_.size() && text_[at] == ' ') ++at;
    if (at >= text_.size() || text_[at] != ':') refuse(entry.key_location);
    return at + 1;
  }
  // Returns where the comment lines directly before a line begin, but nothing before `first`.
  size_t with_comments(size_t line, size_t first) const {
    while (line > first) {
      const size_t before = line_start(line - 1);
      const size_t sign = text_.find_first_not_of(" \t\r", before);
      if (before < first || (sign < line - 1 && text_[sign] != '#')) break;
      line = before;
    }
    return line;
  }
  bool is_block(const ConfigNode& node) const {
    const bool holds = node.kind == ConfigNode::Kind::map || node.kind == ConfigNode::Kind::list;
    return holds && text_[offset(node.location)] != '{' && text_[offset(node.location)] != '[';
  }

  YamlPart flow(const ConfigNode& node) const {
    YamlPart out{.style = YamlPart::Style::flow, .is_map = node.kind == ConfigNode::Kind::map};
    size_t at = offset(node.location) + 1;
    for (const ConfigEntry& entry : node.entries) {
      YamlEntry made{.key = entry.key, .line = entry.key_location.line};
      const size_t begin = offset(out.is_map ? entry.key_location : entry.value.location);
      made.lead = part(at, begin);
      at = begin;
      if (out.is_map) {
        at = end_of_key(entry);
        made.key_text = part(begin, at);
      }
      size_t end = at;
      if (entry.value.kind == ConfigNode::Kind::null) {
        if (text_[at] == ':') end = at + 1;
        made.between = part(at, end);
      } else {
        const size_t value = offset(entry.value.location);
        made.between = part(at, value);
        const bool holds = entry.value.kind != ConfigNode::Kind::scalar;
        end = holds ? end_of_flow(value) : end_of_scalar(value, true);
        if (holds) {
          made.value = flow(entry.value);
        } else {
          made.value.text = part(value, end);
        }
      }
      const size_t comma = text_.find_first_of(",]}", end);
      made.tail = part(end, comma);
      if (made.tail.find('#') != std::string::npos) refuse(entry.value.location);
      at = text_[comma] == ',' ? comma + 1 : comma;
      out.entries.push_back(std::move(made));
    }
    out.end = part(at, end_of_flow(offset(node.location)) - 1);
    return out;
  }

  void read_value(const ConfigNode& node, YamlEntry& entry, size_t at, size_t end, bool whole) const {
    const size_t sign = text_.find_first_not_of(' ', at);
    if (node.kind == ConfigNode::Kind::null) {
      entry.tail = part(at, end);
    } else if (!whole || (sign < end && (text_[sign] == '|' || text_[sign] == '>'))) {
      entry.value.text = part(at, end);
    } else if (is_block(node)) {
      const size_t eol = line_end(at);
      const bool is_map = node.kind == ConfigNode::Kind::map;
      const bool same_line = offset(node.location) < eol;  // "- key: value"
      const size_t first = same_line ? offset(node.location) : eol;
      entry.between += part(at, first);
      entry.value = is_map ? block_map(node, first, end, nullptr) : block_list(node, first, end);
    } else {
      const size_t value = offset(node.location);
      entry.between += part(at, value);
      const bool holds = node.kind != ConfigNode::Kind::scalar;
      const size_t stop = holds ? end_of_flow(value) : end_of_scalar(value, false);
      if (holds) {
        entry.value = flow(node);
      } else {
        entry.value.text = part(value, stop);
      }
      if (!holds && !node.quoted && entry.value.text != node.text)
        refuse(node.location);  // it goes on in the next line
      entry.tail = part(stop, end);
    }
  }

  // sections: the keys whose values are taken apart; nullptr: all.
  YamlPart block_map(const ConfigNode& node, size_t begin, size_t end, const std::vector<std::string>* sections) const {
    YamlPart out{.style = YamlPart::Style::block, .is_map = true, .column = node.location.column - 1};
    size_t at = begin;
    for (size_t i = 0; i < node.entries.size(); ++i) {
      const ConfigEntry& entry = node.entries[i];
      const size_t key = offset(entry.key_location);
      const bool last = i + 1 == node.entries.size();
      const size_t next =
          last ? end : with_comments(line_start(offset(node.entries[i + 1].key_location)), line_end(key));
      YamlEntry made{.key = entry.key, .column = entry.key_location.column - 1, .line = entry.key_location.line};
      made.lead = part(at, std::max(at, line_start(key)));
      made.key_text = part(key, end_of_key(entry));
      const size_t colon = behind_colon(entry);
      made.between = part(end_of_key(entry), colon);
      const bool whole =
          sections == nullptr || std::find(sections->begin(), sections->end(), entry.key) != sections->end();
      read_value(entry.value, made, colon, next, whole);
      out.entries.push_back(std::move(made));
      at = next;
    }
    return out;
  }
  YamlPart block_list(const ConfigNode& node, size_t begin, size_t end) const {
    YamlPart out{.style = YamlPart::Style::block};
    std::vector<size_t> dashes;
    for (const ConfigEntry& entry : node.entries) {
      const size_t value = offset(entry.value.location);
      const size_t dash = text_.find_first_not_of(' ', line_start(value));
      if (text_[dash] != '-' || dash >= value) refuse(entry.value.location);
      dashes.push_back(dash);
    }
    size_t at = begin;
    for (size_t i = 0; i < dashes.size(); ++i) {
      const bool last = i + 1 == dashes.size();
      const size_t next = last ? end : with_comments(line_start(dashes[i + 1]), line_end(dashes[i]));
      const auto column = static_cast<int>(dashes[i] - line_start(dashes[i]));
      YamlEntry made{.key_text = "-", .column = column, .line = node.entries[i].value.location.line};
      made.lead = part(at, line_start(dashes[i]));
      out.column = column;
      read_value(node.entries[i].value, made, dashes[i] + 1, next, true);
      out.entries.push_back(std::move(made));
      at = next;
    }
    return out;
  }

  std::string_view text_;
  std::vector<size_t> lines_;
};

}  // namespace

YamlPart read_yaml_text(std::string_view text, const std::string& name, const std::vector<std::string>& sections) {
  return TextReader(text).top(parse_yaml(text, name), sections);
}

}  // namespace quire
