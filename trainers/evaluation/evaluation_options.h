// The options of an evaluation: what it reads, and how.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"

namespace quire {

struct EvaluationOptions {
  std::string split;
  int64_t rows = 8;                    // at least one per rank
  std::optional<int64_t> documents;    // reads only the first so many,
  std::optional<int64_t> tokens = {};  // until so many targets: the last document is cut,
  std::vector<int64_t> only = {};      // or, unless empty, only these, in ascending order
  // Only the last so many targets of each document count; the others are read as their context.
  std::optional<int64_t> last = {};
  // Reads each document in windows of data.subsequence tokens that begin every so many tokens and carry no state; a
  // target counts in the first window that has it. See require_stride().
  std::optional<int64_t> stride = {};
  std::function<void(int64_t tokens, int64_t total)> progress;  // may be empty
  std::function<bool()> stop;                                   // may be empty; asked after every step
  std::optional<int64_t> bin_width = {};                        // 0: powers of two; nothing: no bins
  bool each_target = false;                                     // fills EvaluationResult::targets
  // The ranks divide the documents; all get the same result, equal to that of one rank. nullptr: this rank reads all.
  // Progress counts all ranks, and all ranks call both functions at the same moments, with the same answer.
  Ranks* ranks = nullptr;
};

}  // namespace quire
