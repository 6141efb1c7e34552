// Fills batches. The model reads BOS t1 .. tn of a document with n stored tokens and predicts t1 .. tn EOS: n + 1
// positions, each with a target.
#pragma once

#include <span>

#include "core/batch.h"
#include "data/corpus.h"
#include "data/sampler.h"

namespace quire {

class Packer {
 public:
  // The split must outlive this.
  Packer(const Split& split, int32_t bos, int32_t eos, const BatchOptions& options);
  // Pieces of all rows, sorted by row and position; those of other ranks are skipped.
  Batch pack(std::span<const Piece> pieces) const;

 private:
  void put(const Piece& piece, int32_t segment, Batch& batch) const;

  const Split& split_;
  int32_t bos_;
  int32_t eos_;
  BatchOptions options_;
};

}  // namespace quire
