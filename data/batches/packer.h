// Fills batches. The model reads BOS t1 .. tn of a document with n stored tokens and predicts t1 .. tn EOS: n + 1
// positions, each with a target that counts unless it is marked otherwise, or is the first one and left out. Inserted
// tokens lie between them and have no target, or that of the token before them, so each target counts exactly once.
#pragma once

#include <span>

#include "core/batch.h"
#include "data/batches/inserter.h"
#include "data/batches/sampler.h"
#include "data/corpus/documents.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class Packer {
 public:
  // The documents must outlive this.
  Packer(const Documents& documents, const Tokenizer& tokenizer, const BatchOptions& options);
  // Pieces of all rows, sorted by row and position; those of other ranks are skipped.
  Batch pack(std::span<const Piece> pieces) const;

 private:
  void put(const Piece& piece, int32_t segment, Batch& batch) const;
  void put_tokens(const Piece& piece, size_t begin, int64_t count, Batch& batch) const;
  void put_marks(const Piece& piece, size_t begin, int64_t count, Batch& batch) const;
  // What the token before a piece predicts.
  MarkedTarget target_before(const Piece& piece) const;

  const Documents& documents_;
  int32_t bos_;
  int32_t eos_;
  BatchOptions options_;
  Inserter inserter_;
};

}  // namespace quire
