// Makes batches by hand.
#pragma once

#include <algorithm>
#include <vector>

#include "core/batch.h"

namespace quire::test {

// segments[r]: the segment of each position of row r, -1 for padding. Tokens and targets are 0, nothing counts.
inline Batch batch_of(const std::vector<std::vector<int32_t>>& segments, const std::vector<uint8_t>& starts) {
  Batch batch = Batch::empty(static_cast<int64_t>(segments.size()), static_cast<int64_t>(segments[0].size()));
  batch.segment.clear();
  for (const std::vector<int32_t>& row : segments) batch.segment.insert(batch.segment.end(), row.begin(), row.end());
  batch.starts = starts;
  batch.document.assign(batch.segment.size(), 0);
  return batch;
}

// Returns a batch with one segment per row and no padding.
inline Batch one_segment(int64_t rows, int64_t length, const std::vector<uint8_t>& starts) {
  const std::vector<int32_t> row(static_cast<size_t>(length), 0);
  return batch_of(std::vector<std::vector<int32_t>>(static_cast<size_t>(rows), row), starts);
}
// Returns the part of the rows' documents, one in each row, from a position on.
inline Batch one_segment_from(int64_t position, int64_t rows, int64_t length) {
  Batch batch = one_segment(rows, length, std::vector<uint8_t>(static_cast<size_t>(rows), position == 0 ? 1 : 0));
  for (int64_t cell = 0; cell < rows * length; ++cell) {
    batch.position[static_cast<size_t>(cell)] = static_cast<int32_t>(position + cell % length);
  }
  return batch;
}

// The lengths of the documents of each row.
using Documents = std::vector<std::vector<int64_t>>;

// Returns the part [begin, begin + length) of rows of documents, which may end in padding.
inline Batch part_of_rows(const Documents& documents, int64_t begin, int64_t length) {
  Batch batch = Batch::empty(static_cast<int64_t>(documents.size()), length);
  for (int64_t row = 0; row < batch.rows; ++row) {
    int64_t first = 0, number = -1, first_number = -1;
    for (const int64_t count : documents[static_cast<size_t>(row)]) {
      ++number;
      for (int64_t t = std::max(first, begin); t < std::min(first + count, begin + length); ++t) {
        if (first_number < 0) first_number = number;
        const auto cell = static_cast<size_t>(batch.at(row, t - begin));
        batch.segment[cell] = static_cast<int32_t>(number - first_number);
        batch.position[cell] = static_cast<int32_t>(t - first);
        batch.document[cell] = number;
      }
      if (first == begin) batch.starts[static_cast<size_t>(row)] = 1;
      first += count;
    }
  }
  return batch;
}

}  // namespace quire::test
