// Compares and collects batches.
#pragma once

#include "data/batches/batch_source.h"

namespace quire::test {

inline bool equal(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.length == b.length && a.first_row == b.first_row && a.tokens == b.tokens &&
         a.targets == b.targets && a.loss_mask == b.loss_mask && a.recalled == b.recalled && a.inserted == b.inserted &&
         a.segment == b.segment && a.position == b.position && a.document == b.document && a.starts == b.starts &&
         a.target_count == b.target_count;
}

inline bool equal(const CursoredBatch& a, const CursoredBatch& b) {
  return a.after == b.after && equal(a.batch, b.batch);
}

// Returns at most `count` batches; fewer when the stream ends.
inline std::vector<CursoredBatch> take(BatchStream& stream, int count) {
  std::vector<CursoredBatch> batches;
  while (count-- > 0) {
    std::optional<CursoredBatch> batch = stream.next();
    if (!batch) break;
    batches.push_back(std::move(*batch));
  }
  return batches;
}

}  // namespace quire::test
