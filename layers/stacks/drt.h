// DRT (Hu et al. 2025, "Efficient Length-Generalizable Attention via Causal Retrieval for Long-Context Language
// Modeling"): a lower half of layers, an encoder of chunks, and groups of upper layers. Each group chooses, once for
// each chunk, which earlier chunks its layers read while they go through the next chunk.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "layers/model/block.h"
#include "layers/model/stack.h"
#include "layers/stacks/chunk_encoder.h"
#include "layers/stacks/drt_reader.h"
#include "layers/stacks/drt_retriever.h"
#include "layers/stacks/drt_scores_file.h"
#include "layers/stacks/drt_words.h"

namespace quire {

class DrtStack final : public Stack {
 public:
  DrtStack(const Scope& scope, const Place& place);

  Variable operator()(const Forward& f, const Variable& x) const override;

  void set_hooks(ChunkHooks hooks) { hooks_ = std::move(hooks); }

 private:
  struct Group {
    std::unique_ptr<ChunkRetriever> retriever;
    ListValues lists;
    std::vector<std::unique_ptr<Block>> blocks;
  };
  // Returns the whole chunks of the pass, [R N, C, E], from x [R, T, E] and the carried positions of begun chunks.
  Variable chunks(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, const Variable& x) const;

  DrtConfig config_;
  int64_t width_, key_heads_, head_size_;
  std::vector<std::unique_ptr<Block>> lower_;
  ChunkEncoder encoder_;
  Linear key_, value_;
  std::optional<Linear> landmark_;
  std::optional<BlockLog> store_;
  std::optional<ChunkWords> words_;      // scores: bm25
  std::optional<ChunkScoresFile> file_;  // scores: file
  ChunkValues values_;
  std::vector<Group> groups_;
  ChunkHooks hooks_;
};

// Returns the number of lower layers.
int64_t lower_layers(const DrtConfig& config, const ModelConfig& model);

}  // namespace quire
