#include "trainers/exchange/hf_model.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

constexpr std::array<std::string_view, 7> kLlamaLike{"llama", "mistral", "smollm3",    "qwen3",
                                                     "qwen2", "olmo2",   "gemma3_text"};

// Features of other models. A key counts when its value is not null, false, 0 or empty.
constexpr std::array<std::pair<const char*, const char*>, 16> kRefused{{
    {"quantization_config", "quantised weights are not read"},
    {"num_local_experts", "mixtures of experts are not supported"},
    {"num_experts", "mixtures of experts are not supported"},
    {"n_routed_experts", "mixtures of experts are not supported"},
    {"moe_intermediate_size", "mixtures of experts are not supported"},
    {"enable_moe_block", "mixtures of experts are not supported"},
    {"kv_lora_rank", "multi-head latent attention is not supported"},
    {"q_lora_rank", "multi-head latent attention is not supported"},
    {"attn_logit_softcapping", "softcapping is not supported"},
    {"final_logit_softcapping", "softcapping is not supported"},
    {"rope_interleaved", "only the layout of halves is read"},
    {"use_bidirectional_attention", "attention to later tokens is not supported"},
    {"add_cross_attention", "attention to an encoder is not supported"},
    {"is_encoder_decoder", "attention to an encoder is not supported"},
    {"use_mrope", "rotary positions of images are not supported"},
    {"vision_config", "models of images are not supported"},
}};

bool is_one_of(std::string_view text, const auto& list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

HfModel read_type(HfConfig& config, const std::string& type, const HfReading& reading) {
  if (is_one_of(type, kLlamaLike)) return read_llama_like(config, type, reading);
  if (type == "gpt2") return read_gpt2(config);
  if (type == "gpt_neox") return read_gpt_neox(config, reading);
  config.refuse("model_type", fmt::format("is not supported; {}, gpt2 and gpt_neox are", fmt::join(kLlamaLike, ", ")));
}

}  // namespace

HfModel read_hf_model(HfConfig& config, const HfReading& reading) {
  const std::optional<std::string> type = config.text("model_type");
  if (!type) config.refuse("model_type", "is missing; is this the folder of a model?");
  for (const auto& [key, why] : kRefused) {
    if (const nlohmann::json* value = config.find(key); value != nullptr && !is_neutral(*value))
      config.refuse(key, why);
  }
  HfModel model = read_type(config, *type, reading);
  model.type = *type;
  config.require_known(reading.ignored);
  return model;
}

std::optional<std::string> layer_overrides(const std::vector<std::string>& keys) {
  std::vector<std::pair<std::string, std::vector<size_t>>> groups;  // in the order of layers
  for (size_t layer = 0; layer < keys.size(); ++layer) {
    if (keys[layer] == keys.front()) continue;
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == keys[layer]; });
    if (same == groups.end()) {
      groups.push_back({keys[layer], {layer}});
    } else {
      same->second.push_back(layer);
    }
  }
  if (groups.empty()) return std::nullopt;
  std::vector<std::string> entries;
  for (const auto& [text, layers] : groups) {
    entries.push_back(fmt::format("{{layers: [{}], {}}}", fmt::join(layers, ", "), text));
  }
  return fmt::format("model.layer_overrides=[{}]", fmt::join(entries, ", "));
}

std::string gated_kind(const HfConfig& config, const std::string& key, const std::string& activation) {
  if (activation == "silu" || activation == "swish") return "swiglu";
  if (activation == "gelu") return "geglu_erf";
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh") return "geglu";
  config.refuse(key, "is not supported; silu, gelu, gelu_new and gelu_pytorch_tanh are");
}

std::string plain_kind(const HfConfig& config, const std::string& key, const std::string& activation) {
  if (activation == "gelu") return "gelu_erf";
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast") return "gelu";
  if (activation == "relu") return "relu";
  config.refuse(key, "is not supported; gelu, gelu_new, gelu_pytorch_tanh, gelu_fast and relu are");
}

}  // namespace quire
