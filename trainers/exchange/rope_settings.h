// The rotary positions that a config.json describes, in the form of transformers 4 (rope_theta, rope_scaling) and in
// that of transformers 5 (rope_parameters).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainers/exchange/hf_config.h"

namespace quire {

struct RopeSettings {
  double theta = 10000;
  double partial = 1;                                  // the share of a head's features that are rotated
  std::string kind = "default";                        // linear, dynamic, llama3, yarn, longrope
  std::map<std::string, nlohmann::json> options = {};  // of the kind, under their names in config.json

  bool operator==(const RopeSettings&) const = default;
};

// Defaults of an architecture.
struct RopeDefaults {
  double theta = 10000;
  double partial = 1;
  const char* theta_key = "rope_theta";   // form 4
  const char* other_theta_key = nullptr;  // another name of it
  const char* partial_key = nullptr;      // form 4; nullptr where all features are rotated
  const char* other_partial_key = nullptr;
  bool scaled = true;           // rope_scaling is about these layers
  bool may_be_partial = false;  // partial_rotary_factor may differ from 1
};

// Reads the settings of all layers, or of those of a type ("sliding_attention") where rope_parameters is nested by
// layer type. Throws Error(data) where both forms are given and differ, and for kinds and options that are unknown.
RopeSettings read_rope(HfConfig& config, const RopeDefaults& defaults, const std::string& layer_type = "");

// Returns the keys of model.position.rope, as "{base: 10000, scaling: {...}}". head_size: features of a head;
// max_positions: max_position_embeddings; length: the length of text for dynamic and longrope.
std::string rope_keys(HfConfig& config, const RopeSettings& rope, int64_t head_size, int64_t max_positions,
                      int64_t length);

}  // namespace quire
