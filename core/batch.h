// What the data path hands to the model: R rows of T model positions. Plain host data; the model uploads what it needs.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

// Parts that not every batch has.
struct BatchParts {
  bool recalled = false;
  bool inserted = false;
};

struct Batch {
  int64_t rows = 0;       // R
  int64_t length = 0;     // T
  int64_t first_row = 0;  // global index of row 0: random masks and state depend on it, not on the rank

  std::vector<int32_t> tokens;     // [R, T]; padding holds 0
  std::vector<int32_t> targets;    // [R, T]; the token that follows; 0 where loss_mask is 0
  std::vector<uint8_t> loss_mask;  // [R, T]; 1 where the target counts
  // 1 where the target repeats what the document said long before: reported apart. Empty when no document has marks.
  std::vector<uint8_t> recalled;  // [R, T]
  // 1 where the model inserted a token (core/insertion.h), which is no target. Empty when it inserts none.
  std::vector<uint8_t> inserted;  // [R, T]
  std::vector<int32_t> segment;   // [R, T]; 0, 1, ... the documents of a row in order; -1 for padding
  // Model position in the document (BOS is 0), or in the stream where documents are read as one: inserted tokens are
  // counted. 0 for padding.
  std::vector<int32_t> position;  // [R, T]
  std::vector<int64_t> document;  // [R, T]; index of the document in its split; -1 for padding
  std::vector<uint8_t> starts;    // [R]; 1 when segment 0 is the beginning of a document: the row's state is dropped
  int64_t target_count = 0;       // sum of loss_mask

  // Nothing but padding.
  static Batch empty(int64_t rows, int64_t length, int64_t first_row = 0, BatchParts parts = {});

  int64_t at(int64_t row, int64_t t) const { return row * length + t; }
  // Rows [begin, end) as a batch of its own.
  Batch row_block(int64_t begin, int64_t end) const;
};

// What a row carries on: only the last segment of a row, only its unpadded positions, is written to state.
struct RowCarry {
  int64_t begin = 0;      // first position written
  int64_t count = 0;      // number of positions written; 0 for an empty row
  bool replaces = false;  // a later document began inside the row: what was carried before is dropped
};
std::vector<RowCarry> carried_positions(const Batch& batch);

}  // namespace quire
