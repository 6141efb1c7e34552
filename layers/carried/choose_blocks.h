// Chooses the blocks with the largest scores for each query, among the stored ones and those of the pass. Scores and
// masks are computed for one piece of the blocks at a time, so that only the summaries grow with the document.
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
  int64_t count;         // all candidates: behind the stored ones those of the pass
  int64_t top_k;         // K
  int64_t piece = 1024;  // stored candidates that have scores at a time

  // Returns pieces of all candidates; those of the pass belong to the last piece.
  std::vector<BlockPiece> pieces() const;
};

using OfPiece = std::function<Tensor(const BlockPiece&)>;

// Returns the numbers of the chosen candidates, i32 [.., K], the best first; of equal ones the older first; -1: none.
// scores_of returns the scores of a piece, [.., size]. mask_of returns u8 of the same shape, or with axes of 1 that are
// broadcast: 1 for the candidates that a query may choose. There is no gradient. `scores`, if it is given, receives the
// scores of the chosen ones, [.., K], 0 for none.
Tensor choose_blocks(const BlockChoice& choice, const OfPiece& scores_of, const OfPiece& mask_of,
                     Tensor* scores = nullptr);

// Returns [R, H, T, N]: scale times the products of queries [R, T, H, D] with the keys [R, N, Hk, D] that stand for
// blocks.
Tensor block_scores(const Tensor& q, const Tensor& keys, double scale);

}  // namespace quire
