// The keys of evaluate.set of the previous version.
#pragma once

#include "core/config/yaml_text.h"
#include "trainers/setup/previous_keys.h"

namespace quire {

struct PreviousSettings {
  const std::string& name;                       // of the file
  const PreviousValues& base;                    // of all layers
  const std::vector<PreviousValues>& overrides;  // of the layers of each override
  std::vector<std::string>& changes;             // a line is added for each
};
// Renames the keys of evaluate.set in place. Error(config) for a key that cannot be converted.
void rename_previous_settings(YamlPart& set, const PreviousSettings& known);

}  // namespace quire
