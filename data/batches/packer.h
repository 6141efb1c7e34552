// Fills batches. The model reads BOS t1 .. tn of a document with n stored tokens and predicts t1 .. tn EOS: n + 1
// positions, each with a target. A target counts unless its mark says otherwise, it is the first one and
// score_first_token is false, it is context of its piece, or lies before the last targets that count (count_last).
// Inserted tokens lie between them and have no target, or take that of the token before them, so each target counts
// exactly once.
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
  // Packs the pieces of all rows, sorted by row and position; those of other ranks are skipped.
  Batch pack(std::span<const Piece> pieces) const;

 private:
  void put(const Piece& piece, int32_t segment, Batch& batch) const;
  void put_tokens(const Piece& piece, size_t begin, int64_t count, Batch& batch) const;
  void put_marks(const Piece& piece, size_t begin, int64_t count, Batch& batch) const;
  // Returns the offset in its document of the first token of a piece whose target may count.
  int64_t first_counted(const Piece& piece) const;
  // Returns the target of the token before a piece.
  MarkedTarget target_before(const Piece& piece) const;

  const Documents& documents_;
  int32_t bos_;
  int32_t eos_;
  BatchOptions options_;
  Inserter inserter_;
};

}  // namespace quire
