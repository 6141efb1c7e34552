// The options of the classes between a split and its batches, filled from the configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/insertion.h"

namespace quire {

enum class Pack : uint8_t {
  pad,     // the rest of a row after the end of a document is padding
  concat,  // the next document follows in the same row, as another segment
};

enum class Sampling : uint8_t {
  documents,  // a row reads one document after the other
  windows,    // random slices of all documents, read as one
  columns,    // all documents read as one text, cut into as many columns as there are rows
};

struct BatchOptions {
  int64_t subsequence = 512;  // T: model positions per row and step
  int64_t rows = 8;           // rows of all ranks together
  int64_t first_row = 0;      // this rank makes rows [first_row, last_row)
  int64_t last_row = 8;
  Sampling sampling = Sampling::documents;
  Pack pack = Pack::pad;          // how documents fill rows
  Insertion insertion = {};       // the tokens that the model inserts
  bool score_first_token = true;  // false: the first target of a document does not count
  int64_t alignment = 1;          // divides subsequence; concat: a document begins at a multiple of it
  uint64_t seed = 1;              // seeds the order of documents, and windows
  bool shuffle = true;            // false: the order of the split, for evaluation
  bool endless = true;            // false: every document once, then no more batches
  // Restricts reading to these documents of the split, in this order. Not for windows and columns, nor for an endless
  // order.
  std::optional<std::vector<int64_t>> only = {};
  std::optional<int64_t> last_tokens = {};  // reads only so many tokens of the last one, BOS included
};

}  // namespace quire
