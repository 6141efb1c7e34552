// GPT-2, and GPT-NeoX with Pythia.
#include <cmath>

#include "core/check.h"
#include "trainers/exchange/hf_model.h"
#include "trainers/exchange/rope_settings.h"

namespace quire {

namespace {

void read_heads(const HfConfig& config, const char* key, HfModel& model) {
  if (model.width % model.heads != 0) config.refuse(key, fmt::format("does not divide the width {}", model.width));
  model.key_heads = model.heads;
  model.head_size = model.width / model.heads;
}

std::vector<std::string> common_settings(const HfModel& model, double eps, const std::string& kind, int64_t hidden) {
  return {
      fmt::format("model.width={}", model.width),
      fmt::format("model.layers={}", model.layers),
      fmt::format("model.heads={}", model.heads),
      fmt::format("model.norm={{kind: layer, eps: {}}}", eps),
      fmt::format("model.mlp={{kind: {}, hidden: {}, bias: true}}", kind, hidden),
      fmt::format("model.embedding.tied={}", model.tied),
  };
}

}  // namespace

HfModel read_gpt2(HfConfig& config) {
  HfModel model;
  model.layout = Layout::gpt2;
  model.width = config.required_integer("n_embd", 1, 1 << 20);
  model.layers = config.required_integer("n_layer", 1, 10000);
  model.heads = config.required_integer("n_head", 1, 10000);
  read_heads(config, "n_head", model);
  const int64_t hidden = config.integer("n_inner", 1, 1 << 20).value_or(4 * model.width);
  model.vocabulary = config.required_integer("vocab_size", 2, 1 << 30);
  model.positions = config.required_integer("n_positions", 1, 1 << 24);
  if (const auto context = config.integer("n_ctx", 1); context && *context != model.positions) {
    config.refuse("n_ctx", fmt::format("and n_positions {} contradict each other", model.positions));
  }
  model.tied = config.flag("tie_word_embeddings", true);
  const std::string kind =
      plain_kind(config, "activation_function", config.text("activation_function").value_or("gelu_new"));
  model.settings = common_settings(model, config.number("layer_norm_epsilon", 0).value_or(1e-5), kind, hidden);
  model.settings.emplace_back("model.attention.softmax.bias=all");
  model.settings.emplace_back("model.position.kind=none");
  model.settings.push_back(fmt::format("model.embedding.learned_positions={}", model.positions));
  const bool scaled = config.flag("scale_attn_weights", true);
  const double scale = scaled ? 1 / std::sqrt(static_cast<double>(model.head_size)) : 1;
  if (config.flag("scale_attn_by_inverse_layer_idx", false)) {
    std::vector<std::string> keys;
    for (int64_t layer = 0; layer < model.layers; ++layer) {
      keys.push_back(fmt::format("attention: {{softmax: {{scale: {}}}}}", scale / static_cast<double>(layer + 1)));
    }
    if (!scaled) model.settings.emplace_back("model.attention.softmax.scale=1");
    if (const auto overrides = layer_overrides(keys)) model.settings.push_back(*overrides);
  } else if (!scaled) {
    model.settings.emplace_back("model.attention.softmax.scale=1");
  }
  return model;
}

HfModel read_gpt_neox(HfConfig& config, const HfReading& reading) {
  HfModel model;
  model.layout = Layout::gpt_neox;
  model.width = config.required_integer("hidden_size", 1, 1 << 20);
  model.layers = config.required_integer("num_hidden_layers", 1, 10000);
  model.heads = config.required_integer("num_attention_heads", 1, 10000);
  read_heads(config, "num_attention_heads", model);
  const int64_t hidden = config.required_integer("intermediate_size", 1, 1 << 20);
  model.vocabulary = config.required_integer("vocab_size", 2, 1 << 30);
  model.positions = config.required_integer("max_position_embeddings", 1, 1 << 30);
  model.tied = config.flag("tie_word_embeddings", false);
  const std::string kind = plain_kind(config, "hidden_act", config.text("hidden_act").value_or("gelu"));
  model.settings = common_settings(model, config.number("layer_norm_eps", 0).value_or(1e-5), kind, hidden);
  if (config.flag("attention_bias", true)) model.settings.emplace_back("model.attention.softmax.bias=all");
  if (config.flag("use_parallel_residual", true)) model.settings.emplace_back("model.residual=parallel");
  const RopeSettings rope = read_rope(config, {.partial = 0.25,
                                               .theta_key = "rotary_emb_base",
                                               .other_theta_key = "rope_theta",
                                               .partial_key = "rotary_pct",
                                               .other_partial_key = "partial_rotary_factor",
                                               .may_be_partial = true});
  const auto dims = static_cast<int64_t>(static_cast<double>(model.head_size) * rope.partial);
  if (dims < 2 || dims % 2 != 0) {
    config.refuse("rotary_pct", fmt::format("rotates {} of {} features; an even number of at least 2 is needed", dims,
                                            model.head_size));
  }
  model.settings.push_back(
      fmt::format("model.position={{kind: rope, rope: {}}}",
                  rope_keys(config, rope, model.head_size, model.positions, reading.length.value_or(model.positions))));
  return model;
}

}  // namespace quire
