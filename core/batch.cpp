#include "core/batch.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Batch Batch::empty(int64_t rows, int64_t length, int64_t first_row, BatchParts parts) {
  QUIRE_CHECK(rows >= 0 && length >= 0, "batch: {} rows of {} positions", rows, length);
  Batch batch;
  batch.rows = rows;
  batch.length = length;
  batch.first_row = first_row;
  const auto cells = static_cast<size_t>(rows * length);
  batch.tokens.assign(cells, 0);
  batch.targets.assign(cells, 0);
  batch.loss_mask.assign(cells, 0);
  if (parts.recalled) batch.recalled.assign(cells, 0);
  if (parts.inserted) batch.inserted.assign(cells, 0);
  batch.segment.assign(cells, -1);
  batch.position.assign(cells, 0);
  batch.document.assign(cells, -1);
  batch.starts.assign(static_cast<size_t>(rows), 0);
  return batch;
}

Batch Batch::row_block(int64_t begin, int64_t end) const {
  QUIRE_CHECK(begin >= 0 && begin <= end && end <= rows, "batch: rows {}..{} of {}", begin, end, rows);
  Batch block =
      empty(end - begin, length, first_row + begin, {.recalled = !recalled.empty(), .inserted = !inserted.empty()});
  // An optional part that is absent is empty in both batches.
  const auto take = [](const auto& from, int64_t first, auto& to) {
    if (!to.empty()) std::copy_n(from.begin() + first, to.size(), to.begin());
  };
  const int64_t first = at(begin, 0);
  take(tokens, first, block.tokens);
  take(targets, first, block.targets);
  take(loss_mask, first, block.loss_mask);
  take(recalled, first, block.recalled);
  take(inserted, first, block.inserted);
  take(segment, first, block.segment);
  take(position, first, block.position);
  take(document, first, block.document);
  take(starts, begin, block.starts);
  block.names = names;
  for (const uint8_t counted : block.loss_mask) block.target_count += counted;
  return block;
}

std::vector<Segment> segments_of(const Batch& batch) {
  std::vector<Segment> segments;
  for (int64_t row = 0; row < batch.rows; ++row) {
    int32_t current = -1;
    for (int64_t t = 0; t < batch.length; ++t) {
      if (!batch.has_token(batch.at(row, t))) continue;
      const int32_t number = batch.segment[static_cast<size_t>(batch.at(row, t))];
      if (number != current) segments.push_back({.row = row, .begin = t, .carried = number == 0});
      current = number;
      segments.back().count = t + 1 - segments.back().begin;
    }
    if (current >= 0) segments.back().last = true;
  }
  return segments;
}

}  // namespace quire
