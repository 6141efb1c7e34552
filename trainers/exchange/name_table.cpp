#include "trainers/exchange/name_table.h"

#include <array>
#include <charconv>

#include "core/check.h"

namespace quire {

namespace {

constexpr std::array kLlama{
    NamePair{"embedding.weight", "embed_tokens.weight"},
    NamePair{"blocks.N.attention_norm.*", "layers.N.input_layernorm.*"},
    NamePair{"blocks.N.attention.query.*", "layers.N.self_attn.q_proj.*"},
    NamePair{"blocks.N.attention.key.*", "layers.N.self_attn.k_proj.*"},
    NamePair{"blocks.N.attention.value.*", "layers.N.self_attn.v_proj.*"},
    NamePair{"blocks.N.attention.out.*", "layers.N.self_attn.o_proj.*"},
    NamePair{"blocks.N.attention.query_norm.*", "layers.N.self_attn.q_norm.*"},
    NamePair{"blocks.N.attention.key_norm.*", "layers.N.self_attn.k_norm.*"},
    NamePair{"blocks.N.mlp_norm.*", "layers.N.post_attention_layernorm.*"},
    NamePair{"blocks.N.mlp.gate.*", "layers.N.mlp.gate_proj.*"},
    NamePair{"blocks.N.mlp.up.*", "layers.N.mlp.up_proj.*"},
    NamePair{"blocks.N.mlp.down.*", "layers.N.mlp.down_proj.*"},
    NamePair{"norm.*", "norm.*"},
    NamePair{"head.weight", "/lm_head.weight"},
};

constexpr std::array kOlmo2{
    NamePair{"embedding.weight", "embed_tokens.weight"},
    NamePair{"blocks.N.attention.query.*", "layers.N.self_attn.q_proj.*"},
    NamePair{"blocks.N.attention.key.*", "layers.N.self_attn.k_proj.*"},
    NamePair{"blocks.N.attention.value.*", "layers.N.self_attn.v_proj.*"},
    NamePair{"blocks.N.attention.out.*", "layers.N.self_attn.o_proj.*"},
    NamePair{"blocks.N.attention.query_norm.*", "layers.N.self_attn.q_norm.*"},
    NamePair{"blocks.N.attention.key_norm.*", "layers.N.self_attn.k_norm.*"},
    NamePair{"blocks.N.attention_norm.*", "layers.N.post_attention_layernorm.*"},
    NamePair{"blocks.N.mlp_norm.*", "layers.N.post_feedforward_layernorm.*"},
    NamePair{"blocks.N.mlp.gate.*", "layers.N.mlp.gate_proj.*"},
    NamePair{"blocks.N.mlp.up.*", "layers.N.mlp.up_proj.*"},
    NamePair{"blocks.N.mlp.down.*", "layers.N.mlp.down_proj.*"},
    NamePair{"norm.*", "norm.*"},
    NamePair{"head.weight", "/lm_head.weight"},
};

constexpr std::array kGemma3{
    NamePair{"embedding.weight", "embed_tokens.weight"},
    NamePair{"blocks.N.attention_norm.*", "layers.N.input_layernorm.*", CutKind::plus_one},
    NamePair{"blocks.N.attention.query.*", "layers.N.self_attn.q_proj.*"},
    NamePair{"blocks.N.attention.key.*", "layers.N.self_attn.k_proj.*"},
    NamePair{"blocks.N.attention.value.*", "layers.N.self_attn.v_proj.*"},
    NamePair{"blocks.N.attention.out.*", "layers.N.self_attn.o_proj.*"},
    NamePair{"blocks.N.attention.query_norm.*", "layers.N.self_attn.q_norm.*", CutKind::plus_one},
    NamePair{"blocks.N.attention.key_norm.*", "layers.N.self_attn.k_norm.*", CutKind::plus_one},
    NamePair{"blocks.N.attention_out_norm.*", "layers.N.post_attention_layernorm.*", CutKind::plus_one},
    NamePair{"blocks.N.mlp_norm.*", "layers.N.pre_feedforward_layernorm.*", CutKind::plus_one},
    NamePair{"blocks.N.mlp_out_norm.*", "layers.N.post_feedforward_layernorm.*", CutKind::plus_one},
    NamePair{"blocks.N.mlp.gate.*", "layers.N.mlp.gate_proj.*"},
    NamePair{"blocks.N.mlp.up.*", "layers.N.mlp.up_proj.*"},
    NamePair{"blocks.N.mlp.down.*", "layers.N.mlp.down_proj.*"},
    NamePair{"norm.*", "norm.*", CutKind::plus_one},
    NamePair{"head.weight", "/lm_head.weight"},
};

constexpr std::array kGpt2{
    NamePair{"embedding.weight", "wte.weight"},
    NamePair{"embedding.positions", "wpe.weight"},
    NamePair{"blocks.N.attention_norm.*", "h.N.ln_1.*"},
    NamePair{"blocks.N.attention.query.*", "h.N.attn.c_attn.*", CutKind::thirds, 0},
    NamePair{"blocks.N.attention.key.*", "h.N.attn.c_attn.*", CutKind::thirds, 1},
    NamePair{"blocks.N.attention.value.*", "h.N.attn.c_attn.*", CutKind::thirds, 2},
    NamePair{"blocks.N.attention.out.*", "h.N.attn.c_proj.*", CutKind::transposed},
    NamePair{"blocks.N.mlp_norm.*", "h.N.ln_2.*"},
    NamePair{"blocks.N.mlp.up.*", "h.N.mlp.c_fc.*", CutKind::transposed},
    NamePair{"blocks.N.mlp.down.*", "h.N.mlp.c_proj.*", CutKind::transposed},
    NamePair{"norm.*", "ln_f.*"},
    NamePair{"head.weight", "/lm_head.weight"},
};

constexpr std::array kGptNeox{
    NamePair{"embedding.weight", "embed_in.weight"},
    NamePair{"blocks.N.attention_norm.*", "layers.N.input_layernorm.*"},
    NamePair{"blocks.N.attention.query.*", "layers.N.attention.query_key_value.*", CutKind::per_head, 0},
    NamePair{"blocks.N.attention.key.*", "layers.N.attention.query_key_value.*", CutKind::per_head, 1},
    NamePair{"blocks.N.attention.value.*", "layers.N.attention.query_key_value.*", CutKind::per_head, 2},
    NamePair{"blocks.N.attention.out.*", "layers.N.attention.dense.*"},
    NamePair{"blocks.N.mlp_norm.*", "layers.N.post_attention_layernorm.*"},
    NamePair{"blocks.N.mlp.up.*", "layers.N.mlp.dense_h_to_4h.*"},
    NamePair{"blocks.N.mlp.down.*", "layers.N.mlp.dense_4h_to_h.*"},
    NamePair{"norm.*", "final_layer_norm.*"},
    NamePair{"head.weight", "/embed_out.weight"},
};

constexpr std::array kNoWeightsOfLlama{"layers.N.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"};
constexpr std::array kNoWeightsOfGpt2{"h.N.attn.bias", "h.N.attn.masked_bias"};
constexpr std::array kNoWeightsOfGptNeox{"layers.N.attention.bias", "layers.N.attention.masked_bias",
                                         "layers.N.attention.rotary_emb.inv_freq", "rotary_emb.inv_freq"};

const NameTable kTables[] = {
    {"model.", kLlama, kNoWeightsOfLlama, "lm_head.weight", "embed_tokens.weight"},
    {"model.", kOlmo2, kNoWeightsOfLlama, "lm_head.weight", "embed_tokens.weight"},
    {"model.", kGemma3, kNoWeightsOfLlama, "lm_head.weight", "embed_tokens.weight"},
    {"transformer.", kGpt2, kNoWeightsOfGpt2, "lm_head.weight", "wte.weight"},
    {"gpt_neox.", kGptNeox, kNoWeightsOfGptNeox, "embed_out.weight", "embed_in.weight"},
};

struct Match {
  std::string layer;  // what N stands for
  std::string kind;   // what * stands for
};

std::optional<Match> match(std::string_view pattern, std::string_view name) {
  Match found;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == 'N' && (at == 0 || pattern[at - 1] == '.')) {
      const size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0 || (digits > 1 && name[0] == '0')) return std::nullopt;
      found.layer = name.substr(0, digits);
      name.remove_prefix(digits);
    } else if (pattern[at] == '*') {
      if (name != "weight" && name != "bias") return std::nullopt;
      found.kind = name;
      name = {};
    } else {
      if (name.empty() || name[0] != pattern[at]) return std::nullopt;
      name.remove_prefix(1);
    }
  }
  return name.empty() ? std::optional(found) : std::nullopt;
}

std::string filled(std::string_view pattern, const Match& match) {
  std::string name;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == 'N' && (at == 0 || pattern[at - 1] == '.')) {
      name += match.layer;
    } else if (pattern[at] == '*') {
      name += match.kind;
    } else {
      name += pattern[at];
    }
  }
  return name;
}

TensorCut cut_of(const NamePair& pair, int64_t head_size) {
  switch (pair.kind) {
    case CutKind::whole:
      return {};
    case CutKind::transposed:
      return {.transposed = true};
    case CutKind::thirds:
      return {.part = pair.part, .parts = 3, .transposed = true};
    case CutKind::per_head:
      return {.part = pair.part, .parts = 3, .head_rows = head_size};
    case CutKind::plus_one:
      return {.added = 1};
  }
  return {};
}

}  // namespace

const NameTable& name_table(Layout layout) {
  return kTables[static_cast<size_t>(layout)];
}

std::optional<ForeignName> foreign_name(const NameTable& table, const std::string& parameter, int64_t head_size) {
  for (const NamePair& pair : table.names) {
    const std::optional<Match> found = match(pair.quire, parameter);
    if (!found) continue;
    const bool prefixed = pair.foreign[0] != '/';
    return ForeignName{filled(prefixed ? pair.foreign : pair.foreign + 1, *found), prefixed, cut_of(pair, head_size)};
  }
  return std::nullopt;
}

bool is_ignored(const NameTable& table, std::string_view name, int64_t layers) {
  for (const char* pattern : table.ignored) {
    const std::optional<Match> found = match(pattern, name);
    if (!found) continue;
    int64_t layer = 0;
    const char* end = found->layer.data() + found->layer.size();
    const auto read = std::from_chars(found->layer.data(), end, layer);
    if (found->layer.empty() || (read.ec == std::errc{} && layer < layers)) return true;
  }
  return false;
}

}  // namespace quire
