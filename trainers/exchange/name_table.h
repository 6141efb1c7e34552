// The names of parameters in Hugging Face layouts: one table per layout, for import and export.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainers/exchange/tensor_cut.h"

namespace quire {

enum class CutKind {
  whole,
  transposed,  // Conv1D of GPT-2 stores [in, out]
  thirds,      // transposed: queries, keys and values follow each other
  per_head,    // queries, keys and values of one head follow each other (GPT-NeoX)
  plus_one,    // the layout's value is the gain less 1 (Gemma)
};

// N stands for the number of a layer, and * for "weight" or "bias". A name that begins with / never has the prefix.
struct NamePair {
  const char* quire;
  const char* foreign;
  CutKind kind = CutKind::whole;
  int64_t part = 0;
};

struct NameTable {
  const char* prefix;
  std::span<const NamePair> names;
  std::span<const char* const> ignored;  // buffers that are no weights, by exact pattern
  const char* head;                      // of the projection to the vocabulary, without the prefix
  const char* embedding;                 // of the embeddings, with the prefix
};

enum class Layout { llama, olmo2, gemma3, gpt2, gpt_neox };
const NameTable& name_table(Layout layout);

struct ForeignName {
  std::string name;  // without the prefix where `prefixed` is true
  bool prefixed = true;
  TensorCut cut;
};
// Returns where a parameter lies; nothing when the layout has no name for it. head_size: features of a head.
std::optional<ForeignName> foreign_name(const NameTable& table, const std::string& parameter, int64_t head_size);

// Says whether a tensor is a buffer that import leaves out. The name has no prefix.
bool is_ignored(const NameTable& table, std::string_view name, int64_t layers);

}  // namespace quire
