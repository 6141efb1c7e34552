// The value of evaluate.split: the name of a split, or a list of names.
#pragma once

#include <string>
#include <vector>

#include "core/config/config_value.h"

namespace quire {

struct SplitNames {
  std::vector<std::string> names;  // at least one, all different
  const std::string& first() const { return names.front(); }
};

// Throws Error(config) for an empty list, and for a name that stands in it twice.
void read_value(const ConfigNode& node, const ValueContext& context, SplitNames& value);
// Writes one name as a text, several as a list.
ConfigNode write_value(const SplitNames& value);

template <>
inline std::string type_of_field<SplitNames>() {
  return "text | list of text";
}

}  // namespace quire
