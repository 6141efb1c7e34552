// Batches by hand.
#pragma once

#include <vector>

#include "core/batch.h"

namespace quire::test {

// segments[r]: the segment of each position of row r, -1 for padding. Tokens and targets are 0, nothing counts.
inline Batch batch_of(const std::vector<std::vector<int32_t>>& segments, const std::vector<uint8_t>& starts) {
  Batch batch;
  batch.rows = static_cast<int64_t>(segments.size());
  batch.length = static_cast<int64_t>(segments[0].size());
  for (const std::vector<int32_t>& row : segments) batch.segment.insert(batch.segment.end(), row.begin(), row.end());
  batch.starts = starts;
  const size_t count = batch.segment.size();
  batch.tokens.assign(count, 0);
  batch.targets.assign(count, 0);
  batch.loss_mask.assign(count, 0);
  batch.position.assign(count, 0);
  batch.document.assign(count, 0);
  return batch;
}

// One segment per row, no padding.
inline Batch one_segment(int64_t rows, int64_t length, const std::vector<uint8_t>& starts) {
  const std::vector<int32_t> row(static_cast<size_t>(length), 0);
  return batch_of(std::vector<std::vector<int32_t>>(static_cast<size_t>(rows), row), starts);
}

}  // namespace quire::test
