// Architectures built like Llama: Llama, Mistral, SmolLM3, Qwen2, Qwen3, OLMo 2, Gemma 3. What a key means when it is
// absent differs between them, and is that of transformers' configuration classes.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "trainers/exchange/hf_model.h"
#include "trainers/exchange/rope_settings.h"

namespace quire {

namespace {

enum class Biases { by_key, qkv, none };
enum class Windows { none, always, qwen, smollm3, gemma3 };

struct Traits {
  std::string_view type;
  Layout layout;
  double eps;
  double theta;
  bool tied;
  int64_t key_heads;  // 0: as many as heads
  int64_t head_size;  // 0: width / heads
  Biases biases;
  bool mlp_bias;  // the key exists
  Windows windows;
  const char* qk_norm;
  const char* placement;
  const char* activation_key;
};

constexpr std::array kTraits{
    Traits{"llama", Layout::llama, 1e-6, 1e4, false, 0, 0, Biases::by_key, true, Windows::none, "none", "pre",
           "hidden_act"},
    Traits{"mistral", Layout::llama, 1e-6, 1e4, false, 8, 0, Biases::none, false, Windows::always, "none", "pre",
           "hidden_act"},
    Traits{"smollm3", Layout::llama, 1e-6, 2e6, true, 4, 0, Biases::by_key, true, Windows::smollm3, "none", "pre",
           "hidden_act"},
    Traits{"qwen3", Layout::llama, 1e-6, 1e4, false, 32, 128, Biases::by_key, false, Windows::qwen, "head", "pre",
           "hidden_act"},
    Traits{"qwen2", Layout::llama, 1e-6, 1e4, false, 32, 0, Biases::qkv, false, Windows::qwen, "none", "pre",
           "hidden_act"},
    Traits{"olmo2", Layout::olmo2, 1e-5, 1e4, false, 0, 0, Biases::by_key, false, Windows::none, "all", "after",
           "hidden_act"},
    Traits{"gemma3_text", Layout::gemma3, 1e-6, 1e6, true, 4, 256, Biases::by_key, false, Windows::gemma3, "head",
           "both", "hidden_activation"},
};

const Traits& traits_of(const std::string& type) {
  return *std::find_if(kTraits.begin(), kTraits.end(), [&](const Traits& traits) { return traits.type == type; });
}

// Returns which layers rotate queries and keys.
std::vector<bool> rotary_layers(HfConfig& config, const Traits& traits, int64_t layers) {
  std::vector<bool> rotary(static_cast<size_t>(layers), true);
  if (traits.windows != Windows::smollm3) return rotary;
  const int64_t interval = config.integer("no_rope_layer_interval", 1).value_or(4);
  const std::optional<std::vector<int64_t>> given = config.integers("no_rope_layers");  // 1 means rotary
  if (given && static_cast<int64_t>(given->size()) != layers) {
    config.refuse("no_rope_layers", fmt::format("has {} numbers for {} layers", given->size(), layers));
  }
  for (size_t i = 0; i < rotary.size(); ++i) {
    if (given && (*given)[i] != 0 && (*given)[i] != 1)
      config.refuse("no_rope_layers", "holds a number other than 0 and 1");
    rotary[i] = given ? (*given)[i] == 1 : (static_cast<int64_t>(i) + 1) % interval != 0;
  }
  return rotary;
}

// Returns which layers have a window when layer_types does not say it.
std::vector<bool> default_windows(HfConfig& config, const Traits& traits, const std::vector<bool>& rotary,
                                  bool in_use) {
  std::vector<bool> windowed(rotary.size(), false);
  const int64_t first = traits.windows == Windows::qwen ? config.integer("max_window_layers").value_or(28) : 0;
  int64_t pattern = 6;
  if (traits.windows == Windows::gemma3) {
    const std::optional<int64_t> own = config.integer("_sliding_window_pattern", 1);
    pattern = config.integer("sliding_window_pattern", 1).value_or(own.value_or(6));
  }
  for (size_t i = 0; i < windowed.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    switch (traits.windows) {
      case Windows::none:
        break;
      case Windows::always:
        windowed[i] = in_use;
        break;
      case Windows::qwen:
        windowed[i] = in_use && layer >= first;
        break;
      case Windows::smollm3:
        windowed[i] = in_use && !rotary[i];
        break;
      case Windows::gemma3:
        windowed[i] = (layer + 1) % pattern != 0;
        break;
    }
  }
  return windowed;
}

// The window counts tokens with the token itself: a key at distance W is not seen.
struct LayerWindows {
  int64_t tokens = 0;
  std::vector<bool> windowed;
};

LayerWindows read_windows(HfConfig& config, const Traits& traits, const std::vector<bool>& rotary) {
  LayerWindows windows;
  // 0: no window is in use.
  int64_t tokens = 0;
  if (traits.windows != Windows::none) {
    tokens = config.integer("sliding_window", 1).value_or(config.is_null("sliding_window") ? 0 : 4096);
  }
  if (traits.windows == Windows::qwen || traits.windows == Windows::smollm3) {
    if (!config.flag("use_sliding_window", false)) tokens = 0;
  }
  windows.windowed = default_windows(config, traits, rotary, tokens > 0);
  if (const std::optional<std::vector<std::string>> types = config.texts("layer_types")) {
    if (types->size() != rotary.size()) {
      config.refuse("layer_types", fmt::format("names {} layers of {}", types->size(), rotary.size()));
    }
    for (size_t i = 0; i < rotary.size(); ++i) {
      const std::string& type = (*types)[i];
      if (type != "full_attention" && type != "sliding_attention") {
        config.refuse("layer_types",
                      fmt::format("{} is not supported; full_attention and sliding_attention are", type));
      }
      windows.windowed[i] = type == "sliding_attention";
    }
  }
  const bool any = std::find(windows.windowed.begin(), windows.windowed.end(), true) != windows.windowed.end();
  if (any && tokens == 0) config.refuse("layer_types", "names sliding_attention, and no window is in use");
  windows.tokens = tokens;
  if (any && windows.tokens < 2) config.refuse("sliding_window", "must be at least 2");
  return windows;
}

// The keys of a layer that may differ from layer to layer.
struct PerLayer {
  std::string position;
  std::string window;
};
std::vector<PerLayer> keys_of_layers(HfConfig& config, const Traits& traits, const HfModel& model, int64_t length) {
  const std::vector<bool> rotary = rotary_layers(config, traits, model.layers);
  const LayerWindows windows = read_windows(config, traits, rotary);
  const bool gemma = traits.windows == Windows::gemma3;
  const RopeSettings full = read_rope(config, {.theta = traits.theta}, gemma ? "full_attention" : "");
  const std::string full_keys = rope_keys(config, full, model.head_size, model.positions, length);
  std::string sliding_keys = full_keys;
  if (gemma) {
    const RopeSettings sliding =
        read_rope(config, {.theta = 1e4, .theta_key = "rope_local_base_freq", .scaled = false}, "sliding_attention");
    sliding_keys = rope_keys(config, sliding, model.head_size, model.positions, length);
    // An override keeps what it does not name.
    if (full.kind != "default" && sliding.kind == "default") {
      sliding_keys.insert(sliding_keys.size() - 1, ", scaling: {kind: none}");
    }
    if (full.kind == "default" && sliding.kind != "default")
      config.refuse("rope_parameters", "scales sliding_attention alone");
  }
  std::vector<PerLayer> keys;
  for (size_t i = 0; i < rotary.size(); ++i) {
    const bool windowed = windows.windowed[i];
    keys.push_back(
        {rotary[i] ? fmt::format("{{kind: rope, rope: {}}}", windowed ? sliding_keys : full_keys) : "{kind: none}",
         windowed ? fmt::format("{}", windows.tokens - 1) : "none"});
  }
  return keys;
}

void add_layers(const std::vector<PerLayer>& keys, HfModel& model) {
  model.settings.push_back("model.position=" + keys.front().position);
  model.settings.push_back("model.attention.softmax.window=" + keys.front().window);
  std::vector<std::string> texts;
  for (const PerLayer& layer : keys) {
    texts.push_back(fmt::format("position: {}, attention: {{softmax: {{window: {}}}}}", layer.position, layer.window));
  }
  if (const auto overrides = layer_overrides(texts)) model.settings.push_back(*overrides);
}

void add_biases(HfConfig& config, const Traits& traits, HfModel& model) {
  std::string biases = traits.biases == Biases::qkv ? "qkv" : "none";
  if (traits.biases == Biases::by_key && config.flag("attention_bias", false)) biases = "all";
  if (biases != "none") model.settings.push_back("model.attention.softmax.bias=" + biases);
  if (traits.mlp_bias && config.flag("mlp_bias", false)) model.settings.push_back("model.mlp.bias=true");
}

}  // namespace

HfModel read_llama_like(HfConfig& config, const std::string& type, const HfReading& reading) {
  const Traits& traits = traits_of(type);
  HfModel model;
  model.layout = traits.layout;
  model.width = config.required_integer("hidden_size", 1, 1 << 20);
  model.layers = config.required_integer("num_hidden_layers", 1, 10000);
  model.heads = config.required_integer("num_attention_heads", 1, 10000);
  std::optional<int64_t> key_heads = config.integer("num_key_value_heads", 1, 10000);
  if (!key_heads && traits.key_heads > 0 && !config.is_null("num_key_value_heads")) key_heads = traits.key_heads;
  model.key_heads = key_heads.value_or(model.heads);
  if (model.heads % model.key_heads != 0) {
    config.refuse("num_key_value_heads", fmt::format("does not divide the {} heads", model.heads));
  }
  const int64_t usual =
      traits.head_size > 0 && !config.is_null("head_dim") ? traits.head_size : model.width / model.heads;
  model.head_size = config.integer("head_dim", 1, 1 << 20).value_or(usual);
  if (model.head_size < 2 || model.head_size % 2 != 0)
    config.refuse("head_dim", "rotary positions need an even number");
  const int64_t hidden = config.required_integer("intermediate_size", 1, 1 << 20);
  model.vocabulary = config.required_integer("vocab_size", 2, 1 << 30);
  model.positions = config.required_integer("max_position_embeddings", 1, 1 << 30);
  model.tied = config.flag("tie_word_embeddings", traits.tied);
  const std::string activation =
      config.text(traits.activation_key).value_or(traits.windows == Windows::gemma3 ? "gelu_pytorch_tanh" : "silu");
  const double eps = config.number("rms_norm_eps", 0).value_or(traits.eps);
  model.settings = {
      fmt::format("model.width={}", model.width),
      fmt::format("model.layers={}", model.layers),
      fmt::format("model.heads={}", model.heads),
      fmt::format("model.key_heads={}", model.key_heads),
      fmt::format("model.head_size={}", model.head_size),
      fmt::format("model.norm={{kind: rms, eps: {}, placement: {}}}", eps, traits.placement),
      fmt::format("model.mlp={{kind: {}, hidden: {}}}", gated_kind(config, traits.activation_key, activation), hidden),
      fmt::format("model.embedding.tied={}", model.tied),
  };
  add_biases(config, traits, model);
  if (traits.qk_norm != std::string_view("none")) {
    model.settings.push_back(fmt::format("model.attention.softmax.rms_qk_norm={}", traits.qk_norm));
  }
  if (traits.layout == Layout::gemma3) {
    model.settings.emplace_back("model.embedding.scale=true");
    const double scalar = config.number("query_pre_attn_scalar", 0).value_or(256);
    model.settings.push_back(fmt::format("model.attention.softmax.scale={}", 1 / std::sqrt(scalar)));
  }
  add_layers(keys_of_layers(config, traits, model, reading.length.value_or(model.positions)), model);
  return model;
}

}  // namespace quire
