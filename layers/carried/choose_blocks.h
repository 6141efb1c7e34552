// Chooses the blocks with the largest scores for each query, among the stored ones and those of the pass. Scores and
// masks exist for a piece of the blocks at a time: what grows with a document is its summaries alone.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"

namespace quire {

// Candidates [first, last).
struct BlockPiece {
  int64_t first, last;
  int64_t size() const { return last - first; }
};

struct BlockChoice {
  int64_t stored;        // M: candidates that are stored blocks, the oldest first
  int64_t count;         // of candidates, with those of the pass behind the stored ones
  int64_t top_k;         // K
  int64_t piece = 1024;  // stored candidates that have scores at a time

  // All candidates; those of the pass belong to the last piece.
  std::vector<BlockPiece> pieces() const;
};

using OfPiece = std::function<Tensor(const BlockPiece&)>;

// Returns i32 [.., K]: candidates, the best first, ties to the older; -1: none. scores_of gives the scores of a piece,
// [.., size]. mask_of gives u8 of the same shape, or with axes of 1 that are broadcast: which of them are candidates of
// a query. There is no gradient. `scores`, if it is given, receives the scores of the chosen, [.., K], 0 for none.
Tensor choose_blocks(const BlockChoice& choice, const OfPiece& scores_of, const OfPiece& mask_of,
                     Tensor* scores = nullptr);

// Returns [R, H, T, N]: scale times the products of queries [R, T, H, D] with the keys [R, N, Hk, D] that stand for
// blocks.
Tensor block_scores(const Tensor& q, const Tensor& keys, double scale);

}  // namespace quire
