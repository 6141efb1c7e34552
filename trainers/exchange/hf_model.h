// Reads a model from config.json, as keys of the configuration of quire.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainers/exchange/hf_config.h"
#include "trainers/exchange/name_table.h"

namespace quire {

struct HfModel {
  Layout layout = Layout::llama;
  std::string type;  // model_type
  int64_t width = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;
  int64_t head_size = 0;
  int64_t vocabulary = 0;
  int64_t positions = 0;  // the longest text that the model was made for
  bool tied = false;
  std::vector<std::string> settings;  // "model.width=32"
};

struct HfReading {
  // The length of text that dynamic and longrope scaling are imported for; none: max_position_embeddings.
  std::optional<int64_t> length;
  std::vector<std::string> ignored;  // keys that change nothing
};

// Throws Error(data) that names the key for whatever quire cannot express.
HfModel read_hf_model(HfConfig& config, const HfReading& reading);

// The readers of the architectures. Each fills everything but `type`.
HfModel read_llama_like(HfConfig& config, const std::string& type, const HfReading& reading);
HfModel read_gpt2(HfConfig& config);
HfModel read_gpt_neox(HfConfig& config, const HfReading& reading);

// Returns model.layer_overrides for layers whose keys differ from those of the first one, as a setting; nothing when
// they are all alike. keys[i]: the keys of layer i, as "position: {kind: none}, ...".
std::optional<std::string> layer_overrides(const std::vector<std::string>& keys);

// Return the value of model.mlp.kind for an activation; refuse others by name.
std::string gated_kind(const HfConfig& config, const std::string& key, const std::string& activation);
std::string plain_kind(const HfConfig& config, const std::string& key, const std::string& activation);

}  // namespace quire
