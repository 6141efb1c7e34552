// The options of the classes between a split and its batches.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/insertion.h"
#include "data/data_config.h"

namespace quire {

struct BatchOptions {
  DataConfig data = {};
  int64_t first_row = 0;  // this rank makes rows [first_row, last_row)
  int64_t last_row = 8;
  Insertion insertion = {};  // what the model reads between the tokens
  int64_t alignment = 1;     // divides data.subsequence; concat: a document begins at a multiple of it
  uint64_t seed = 1;         // of the order of documents, and of windows
  bool shuffle = true;       // false: the order of the split, for evaluation
  bool endless = true;       // false: every document once, then no more batches
  // Only these documents of the split, in their order here. Not for windows and columns, nor in an endless order.
  std::optional<std::vector<int64_t>> only = {};
  std::optional<int64_t> last_tokens = {};  // reads only so many tokens of the last one, BOS included
  std::optional<int64_t> count_last = {};   // only the last so many targets of each document count
};

}  // namespace quire
