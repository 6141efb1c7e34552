// The batch that the data path hands to the model: R rows of T model positions. It is plain host data; the model
// uploads what it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace quire {

// The optional parts that a batch has.
struct BatchParts {
  bool recalled = false;
  bool inserted = false;
};

struct Batch {
  int64_t rows = 0;       // R
  int64_t length = 0;     // T
  int64_t first_row = 0;  // global index of row 0: random masks and state depend on it, not on the rank

  std::vector<int32_t> tokens;  // [R, T]; padding holds 0
  // The next token. Where loss_mask is 0 this is 0, or an inserted token that the model learns to predict, which has an
  // id beyond the vocabulary and is counted nowhere.
  std::vector<int32_t> targets;    // [R, T]
  std::vector<uint8_t> loss_mask;  // [R, T]; 1 where the target counts
  // 1 where the target repeats an earlier part of the document; such targets are also reported separately. Empty when
  // no document has marks.
  std::vector<uint8_t> recalled;  // [R, T]
  // 1 where the model inserted a token (core/insertion.h). Empty when the model inserts none.
  std::vector<uint8_t> inserted;  // [R, T]
  std::vector<int32_t> segment;   // [R, T]; 0, 1, ... the documents of a row in order; -1 for padding
  // Model position in the document (BOS is 0, inserted tokens count), or in the stream where all documents are read as
  // one text. 0 for padding.
  std::vector<int32_t> position;  // [R, T]
  std::vector<int64_t> document;  // [R, T]; index of the document in its split; -1 for padding
  // The names of these documents in their corpus. Generated documents and prompts have none.
  std::map<int64_t, std::string> names;
  std::vector<uint8_t> starts;  // [R]; 1 when segment 0 is the beginning of a document: the row's state is dropped
  int64_t target_count = 0;     // sum of loss_mask

  // Returns a batch that contains only padding.
  static Batch empty(int64_t rows, int64_t length, int64_t first_row = 0, BatchParts parts = {});

  int64_t at(int64_t row, int64_t t) const { return row * length + t; }
  // Returns false for padding. `cell` is at(row, t).
  bool has_token(int64_t cell) const { return segment[static_cast<size_t>(cell)] >= 0; }
  // Returns rows [begin, end) as a batch.
  Batch row_block(int64_t begin, int64_t end) const;
};

// The tokens of one document in a row, without padding.
struct Segment {
  int64_t row = 0;
  int64_t begin = 0;  // the position of its first token
  int64_t count = 0;
  bool carried = false;  // continues from the state of its row; other segments begin with empty state
  bool last = false;     // its final state becomes the state of its row
};
// Returns the segments in the order of rows and positions.
std::vector<Segment> segments_of(const Batch& batch);

}  // namespace quire
