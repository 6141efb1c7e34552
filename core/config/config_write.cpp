// Writes a ConfigNode as YAML text that reads back as the same tree.
#include <algorithm>

#include "core/check.h"
#include "core/config/config_node.h"

namespace quire {

namespace {

bool needs_no_quotes(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '/' || c == '-' || c == '+';
}

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20U || byte == 0x7FU) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string key_text(const std::string& key) {
  const bool as_it_is = !key.empty() && key.front() != '-' && std::all_of(key.begin(), key.end(), needs_no_quotes) &&
                        key != "null" && key != "Null" && key != "NULL";
  return as_it_is ? key : quote(key);
}

// Returns the scalar, quoted also where unquoted text would be read differently inside a flow list or as a multi-line
// value.
std::string scalar_text(const ConfigNode& node) {
  const bool as_it_is = !node.quoted && !node.text.empty() &&
                        std::all_of(node.text.begin(), node.text.end(), needs_no_quotes) && node.text != "-" &&
                        node.text.substr(0, 3) != "---" && node.text.substr(0, 3) != "...";
  return as_it_is ? node.text : quote(node.text);
}

bool is_flat(const ConfigNode& node) {
  return std::none_of(node.entries.begin(), node.entries.end(), [](const ConfigEntry& entry) {
    return entry.value.kind == ConfigNode::Kind::map || !is_flat(entry.value);
  });
}

void write_map(const ConfigNode& map, const std::string& indent, std::string& out);

void write_value(const ConfigNode& node, const std::string& indent, std::string& out) {
  const bool in_flow = node.entries.empty() || (node.kind == ConfigNode::Kind::list && is_flat(node));
  if (in_flow) {
    out += fmt::format(" {}\n", flow_yaml(node));
    return;
  }
  out += "\n";
  if (node.kind == ConfigNode::Kind::map) {
    write_map(node, indent + "  ", out);
    return;
  }
  for (const ConfigEntry& entry : node.entries) {
    out += indent + "  -";
    if (entry.value.kind == ConfigNode::Kind::map && !entry.value.entries.empty()) {
      std::string body;
      write_map(entry.value, indent + "    ", body);
      out += body.substr(indent.size() + 3);  // the first key goes on the line of the dash
    } else {
      out += fmt::format(" {}\n", flow_yaml(entry.value));
    }
  }
}

void write_map(const ConfigNode& map, const std::string& indent, std::string& out) {
  for (const ConfigEntry& entry : map.entries) {
    out += indent + key_text(entry.key) + ":";
    write_value(entry.value, indent, out);
  }
}

}  // namespace

std::string write_yaml(const ConfigNode& map) {
  QUIRE_CHECK(map.kind == ConfigNode::Kind::map, "write_yaml: {} at the top", map.describe());
  if (map.entries.empty()) return "{}\n";
  std::string out;
  write_map(map, "", out);
  return out;
}

std::string flow_yaml(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return "null";
    case ConfigNode::Kind::scalar:
      return scalar_text(node);
    case ConfigNode::Kind::list:
    case ConfigNode::Kind::map:
      break;
  }
  const bool is_map = node.kind == ConfigNode::Kind::map;
  std::string out = is_map ? "{" : "[";
  for (const ConfigEntry& entry : node.entries) {
    if (out.size() > 1) out += ", ";
    if (is_map) out += key_text(entry.key) + ": ";
    out += flow_yaml(entry.value);
  }
  return out + (is_map ? "}" : "]");
}

}  // namespace quire
