#include "trainers/exchange/export_config.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/json.h"
#include "trainers/exchange/layer_keys.h"

namespace quire {

namespace {

using Json = nlohmann::ordered_json;

// The model from which every architecture is written.
struct Source {
  const ModelConfig& model;
  std::vector<LayerKeys> layers;
  int64_t vocabulary;
  int64_t positions;
  nlohmann::json learned_positions;  // null without them

  const LayerKeys& first() const { return layers.front(); }
};

std::string gated_activation(const std::string& kind) {
  if (kind == "swiglu") return "silu";
  if (kind == "geglu") return "gelu_pytorch_tanh";
  return kind == "geglu_erf" ? "gelu" : "";
}

std::string plain_activation(const std::string& kind) {
  if (kind == "gelu") return "gelu_new";
  if (kind == "gelu_erf") return "gelu";
  return kind == "relu" ? "relu" : "";
}

// The dictionary of rotary positions in the form of transformers 5.
Json rope_of(const LayerKeys& layer, int64_t head_size) {
  const std::string where = "position.rope.";
  const auto kind = layer.json(where + "scaling.kind");
  Json rope{{"rope_type", kind.is_string() && kind != "none" ? kind : nlohmann::json("default")},
            {"rope_theta", layer.number(where + "base").value_or(10000)}};
  const auto add = [&](const char* name, const char* key) {
    if (const auto value = layer.json(where + "scaling." + key); !value.is_null()) rope[name] = value;
  };
  if (rope["rope_type"] != "default") {
    add("factor", "factor");
    if (rope["rope_type"] != "dynamic" && rope["rope_type"] != "linear") {
      add("original_max_position_embeddings", "original_length");
    }
    add("low_freq_factor", "low_frequency_factor");
    add("high_freq_factor", "high_frequency_factor");
    add("beta_fast", "beta_fast");
    add("beta_slow", "beta_slow");
    add("truncate", "truncate");
    add("attention_factor", "attention_factor");
    add("mscale", "mscale");
    add("mscale_all_dim", "mscale_all_dim");
    add("short_factor", "short_factors");
    add("long_factor", "long_factors");
  }
  const double dims = layer.number(where + "dims").value_or(static_cast<double>(head_size));
  if (dims != static_cast<double>(head_size)) rope["partial_rotary_factor"] = dims / static_cast<double>(head_size);
  return rope;
}

// Writes both forms: transformers 4 does not read that of 5 and takes a base of 10000 without scaling.
void write_rope(Json& json, const Json& rope) {
  json["rope_theta"] = rope.at("rope_theta");
  Json scaling = rope;
  scaling.erase("rope_theta");
  scaling.erase("partial_rotary_factor");
  json["rope_scaling"] = scaling.at("rope_type") == "default" ? Json() : scaling;
  json["rope_parameters"] = rope;
}

// The first layer with rotary positions, and without or with a window.
const LayerKeys* rotary_layer(const Source& source, bool windowed) {
  for (const LayerKeys& layer : source.layers) {
    if (layer.text("position.kind") == "rope" && layer.number("attention.softmax.window").has_value() == windowed) {
      return &layer;
    }
  }
  return nullptr;
}

void write_windows(const Source& source, const std::string& type, Json& json) {
  Json types = Json::array();
  std::optional<double> window;
  for (const LayerKeys& layer : source.layers) {
    const std::optional<double> own = layer.number("attention.softmax.window");
    types.push_back(own ? "sliding_attention" : "full_attention");
    if (own) window = own;
  }
  if (type == "llama" || type == "olmo2") return;
  json["sliding_window"] = window ? Json(static_cast<int64_t>(*window) + 1) : Json();
  if (type == "gemma3_text" && !window) json["sliding_window"] = 4096;
  if (type == "mistral") return;
  json["layer_types"] = types;
  if (type != "gemma3_text") json["use_sliding_window"] = window.has_value();
}

Json llama_like(const Source& source, const std::string& type) {
  const LayerKeys& first = source.first();
  const ModelConfig& model = source.model;
  const std::string softmax = "attention.softmax.";
  const std::string activation = gated_activation(first.text("mlp.kind"));
  if (activation.empty()) return nullptr;
  Json json{{"model_type", type}};
  json["hidden_size"] = model.width;
  json["num_hidden_layers"] = model.layers;
  json["num_attention_heads"] = model.heads;
  json["num_key_value_heads"] = model.heads_of_keys();
  json["head_dim"] = model.size_of_head();
  json["intermediate_size"] = first.json("mlp.hidden");
  json[type == "gemma3_text" ? "hidden_activation" : "hidden_act"] = activation;
  json["rms_norm_eps"] = first.json("norm.eps");
  json["attention_bias"] = first.text(softmax + "bias") == "all";
  if (type == "llama" || type == "smollm3") json["mlp_bias"] = first.flag("mlp.bias");
  if (type == "mistral" || type == "qwen2") json.erase("attention_bias");
  if (type == "gemma3_text") {
    const double scale =
        first.number(softmax + "scale").value_or(1 / std::sqrt(static_cast<double>(model.size_of_head())));
    const double scalar = 1 / (scale * scale);
    const bool whole = std::abs(scalar - std::round(scalar)) < 1e-6;  // transformers 5 takes integers alone
    json["query_pre_attn_scalar"] = whole ? Json(static_cast<int64_t>(std::round(scalar))) : Json(scalar);
  }
  write_windows(source, type, json);
  if (type == "smollm3") {
    json["no_rope_layers"] = Json::array();
    for (const LayerKeys& layer : source.layers) {
      json["no_rope_layers"].push_back(layer.text("position.kind") == "rope" ? 1 : 0);
    }
  }
  const LayerKeys* full = rotary_layer(source, false);
  const LayerKeys* sliding = rotary_layer(source, true);
  if (full == nullptr && sliding == nullptr) return nullptr;
  const int64_t size = model.size_of_head();
  write_rope(json, rope_of(full != nullptr ? *full : *sliding, size));
  if (type == "gemma3_text") {
    const Json local = rope_of(sliding != nullptr ? *sliding : *full, size);
    json["rope_local_base_freq"] = local.at("rope_theta");
    json["rope_parameters"] = {{"full_attention", json["rope_parameters"]}, {"sliding_attention", local}};
  }
  return json;
}

Json gpt2(const Source& source) {
  const LayerKeys& first = source.first();
  const ModelConfig& model = source.model;
  const std::string activation = plain_activation(first.text("mlp.kind"));
  if (activation.empty() || !source.learned_positions.is_number()) return nullptr;
  Json json{{"model_type", "gpt2"},
            {"n_embd", model.width},
            {"n_layer", model.layers},
            {"n_head", model.heads},
            {"n_inner", first.json("mlp.hidden")},
            {"n_positions", source.learned_positions},
            {"activation_function", activation},
            {"layer_norm_epsilon", first.json("norm.eps")}};
  const double usual = 1 / std::sqrt(static_cast<double>(model.size_of_head()));
  const auto scale_of = [&](const LayerKeys& layer) { return layer.number("attention.softmax.scale").value_or(usual); };
  json["scale_attn_weights"] = std::abs(scale_of(first) - usual) < 1e-12;
  json["scale_attn_by_inverse_layer_idx"] =
      source.layers.size() > 1 && std::abs(2 * scale_of(source.layers[1]) - scale_of(first)) < 1e-12;
  return json;
}

Json gpt_neox(const Source& source) {
  const LayerKeys& first = source.first();
  const ModelConfig& model = source.model;
  const std::string activation = plain_activation(first.text("mlp.kind"));
  if (activation.empty() || first.text("position.kind") != "rope") return nullptr;
  Json json{{"model_type", "gpt_neox"},
            {"hidden_size", model.width},
            {"num_hidden_layers", model.layers},
            {"num_attention_heads", model.heads},
            {"intermediate_size", first.json("mlp.hidden")},
            {"hidden_act", activation},
            {"layer_norm_eps", first.json("norm.eps")},
            {"attention_bias", first.text("attention.softmax.bias") == "all"}};
  Json rope = rope_of(first, model.size_of_head());
  if (!rope.contains("partial_rotary_factor")) rope["partial_rotary_factor"] = 1.0;
  write_rope(json, rope);
  json["rotary_emb_base"] = rope.at("rope_theta");
  json["rotary_pct"] = rope.at("partial_rotary_factor");
  json["partial_rotary_factor"] = rope.at("partial_rotary_factor");
  return json;
}

constexpr std::pair<const char*, const char*> kArchitectures[] = {
    {"llama", "LlamaForCausalLM"},        {"mistral", "MistralForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},        {"smollm3", "SmolLM3ForCausalLM"}, {"olmo2", "Olmo2ForCausalLM"},
    {"gemma3_text", "Gemma3ForCausalLM"}, {"gpt2", "GPT2LMHeadModel"},       {"gpt_neox", "GPTNeoXForCausalLM"}};

Json written_as(const std::string& type, const Source& source) {
  if (type == "gpt2") return gpt2(source);
  if (type == "gpt_neox") return gpt_neox(source);
  return llama_like(source, type);
}

// Reads the description as import does. Returns the model and, through `config`, its configuration.
std::optional<HfModel> read_again(const Json& json, int64_t length, ModelConfig& config) {
  try {
    HfConfig hf(nlohmann::json(json), "config.json");
    HfModel read = read_hf_model(hf, {.length = length, .ignored = {}});
    // A table of positions may be shorter than the usual subsequence.
    std::vector<std::string> settings = read.settings;
    settings.push_back(fmt::format("data.subsequence={}", std::min<int64_t>(read.positions, 512)));
    config = parse_config<RunConfig>("{}", "config.json", settings).model;
    return read;
  } catch (const Error&) {
    return std::nullopt;  // the architecture cannot be this model
  }
}

}  // namespace

std::optional<ExportedConfig> express(const ModelConfig& model, int64_t vocabulary, int64_t positions,
                                      const SpecialIds& special) {
  if (model.attention.mechanism.kind != "softmax" || !model.memory.empty()) return std::nullopt;
  ModelConfig listed = model;
  Source source{model, {}, vocabulary, positions, nullptr};
  for (const ConfigSetting& setting : list_settings(StructRef<ModelConfig>(listed))) {
    if (setting.key == "embedding.learned_positions") source.learned_positions = parse_json(setting.value);
  }
  for (const LayerConfig& layer : model.layer_configs()) source.layers.emplace_back(layer);
  const std::optional<double> length = source.first().number("position.rope.scaling.length");
  for (const auto& [type, architecture] : kArchitectures) {
    Json json = written_as(type, source);
    if (json.is_null()) continue;
    if (!json.contains("n_positions")) {
      // Dynamic scaling takes the original length from here.
      const bool dynamic = source.first().text("position.rope.scaling.kind") == "dynamic";
      const auto original = source.first().number("position.rope.scaling.original_length");
      json["max_position_embeddings"] = dynamic && original ? static_cast<int64_t>(*original) : positions;
    }
    json["architectures"] = {architecture};
    json["vocab_size"] = vocabulary;
    json["tie_word_embeddings"] = model.embedding.tied;
    json["bos_token_id"] = special.bos;
    json["eos_token_id"] = special.eos;
    json["pad_token_id"] = nullptr;  // the default of an architecture may lie beyond the vocabulary
    json["use_cache"] = true;
    ModelConfig config;
    const std::optional<HfModel> read =
        read_again(json, static_cast<int64_t>(length.value_or(static_cast<double>(positions))), config);
    if (!read) continue;
    if (!compute_the_same(model, config)) continue;
    HfModel found = *read;
    found.type = type;
    return ExportedConfig{found, json};
  }
  return std::nullopt;
}

}  // namespace quire
