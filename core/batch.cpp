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

std::vector<RowCarry> carried_positions(const Batch& batch) {
  std::vector<RowCarry> carries(static_cast<size_t>(batch.rows));
  for (int64_t r = 0; r < batch.rows; ++r) {
    RowCarry& carry = carries[static_cast<size_t>(r)];
    int32_t last = -1;
    for (int64_t t = 0; t < batch.length; ++t) {
      const int32_t segment = batch.segment[static_cast<size_t>(batch.at(r, t))];
      if (segment < 0) continue;
      if (segment != last) {
        carry.begin = t;
        carry.count = 0;
        last = segment;
      }
      ++carry.count;
    }
    carry.replaces = last > 0;
  }
  return carries;
}

}  // namespace quire
