// Which parts can be combined. The table is in one place; the configuration check and the tests read it.
#pragma once

#include <string>
#include <vector>

#include "layers/model_config.h"

namespace quire {

// One rule: a combination that is refused, the key to point at, and why.
struct CompositionRule {
  const char* key;  // relative to a layer's configuration
  const char* message;
  bool (*refused)(const LayerConfig& layer, const ModelConfig& model);
};
const std::vector<CompositionRule>& composition_rules();

// Error(config) text of the first rule a layer breaks, or an empty string.
struct CompositionFault {
  std::string key;
  std::string message;
  bool found = false;
};
CompositionFault find_composition_fault(const LayerConfig& layer, const ModelConfig& model);

}  // namespace quire
