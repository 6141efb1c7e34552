#include "core/batch.h"

#include "core/check.h"

namespace quire {

namespace {

template <typename T>
std::vector<T> part(const std::vector<T>& values, int64_t begin, int64_t end) {
  return {values.begin() + begin, values.begin() + end};
}

}  // namespace

Batch Batch::row_block(int64_t begin, int64_t end) const {
  QUIRE_CHECK(begin >= 0 && begin <= end && end <= rows, "batch: rows {}..{} of {}", begin, end, rows);
  Batch block;
  block.rows = end - begin;
  block.length = length;
  block.first_row = first_row + begin;
  const int64_t from = begin * length;
  const int64_t to = end * length;
  block.tokens = part(tokens, from, to);
  block.targets = part(targets, from, to);
  block.loss_mask = part(loss_mask, from, to);
  if (!recalled.empty()) block.recalled = part(recalled, from, to);
  block.segment = part(segment, from, to);
  block.position = part(position, from, to);
  block.document = part(document, from, to);
  block.starts = part(starts, begin, end);
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
