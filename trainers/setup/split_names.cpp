#include "trainers/setup/split_names.h"

#include <algorithm>

namespace quire {

void read_value(const ConfigNode& node, const ValueContext& context, SplitNames& value) {
  std::vector<std::string> names;
  if (node.kind == ConfigNode::Kind::list) {
    read_field(node, context, names);
  } else {
    read_value(node, context, names.emplace_back());
  }
  if (names.empty()) config_error(node.location, context.key, "the list is empty; name a split");
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) {
      config_error(node.location, context.key, "has split '" + *name + "' twice");
    }
  }
  value.names = std::move(names);
}

ConfigNode write_value(const SplitNames& value) {
  return value.names.size() == 1 ? write_value(value.first()) : write_field(value.names);
}

}  // namespace quire
