// The tokens of a document's chunks, by which BM25 chooses among them.
#pragma once

#include "layers/carried/carried_blocks.h"
#include "layers/carried/choose_blocks.h"
#include "layers/parameters/scope.h"
#include "layers/stacks/chunk_cut.h"
#include "layers/stacks/drt_config.h"

namespace quire {

class ChunkWords {
 public:
  ChunkWords(const Scope& scope, const DrtConfig& config);

  // Returns the scores of the candidates of ChunkChoice (GivenScores): 0 for those that are no earlier chunk of the
  // document. Also queues the tokens of the pass for the state.
  OfPiece scores(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, DType wide) const;

 private:
  // Returns for each row the tokens of its whole chunks, one after the other.
  std::vector<std::vector<int32_t>> of_pass(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried) const;
  void write(const Forward& f, const ChunkCut& cut, const std::vector<std::vector<int32_t>>& words) const;

  Bm25Config config_;
  int64_t chunk_, farthest_;
  LogGroupId tail_, chunks_;  // undefined where nothing is carried
  LogId begun_, words_;
};

}  // namespace quire
