// Describes a model of quire as config.json of an architecture that transformers has.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/tokenizers/special_names.h"
#include "trainers/exchange/hf_model.h"
#include "trainers/setup/config.h"

namespace quire {

struct ExportedConfig {
  HfModel model;  // as import reads it again
  nlohmann::ordered_json json;
};

// Returns the first architecture whose config.json means this very model when it is imported; nothing when none does.
// positions: the longest text that the model is meant for.
std::optional<ExportedConfig> express(const ModelConfig& model, int64_t vocabulary, int64_t positions,
                                      const SpecialIds& special);

}  // namespace quire
