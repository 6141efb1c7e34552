// What the queries of each block of a subsequence read one by one, and what through the cache of codewords.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"

namespace quire {

struct VqBlocks {
  int64_t block = 0;   // L
  int64_t window = 0;  // M: tokens before a block that are seen one by one
  bool cache = true;   // tokens behind the window are seen through their codewords; without, up to the window itself

  // First visible key per query, [R * T], for ops::AttentionInputs. carried[r] <= M tokens came with the row.
  std::vector<int32_t> first_visible(const Batch& batch, std::span<const int64_t> carried) const;

  // For ops::CodeCacheInputs, [R * (B + 1)] each: the cache that a block reads holds all tokens of its document before
  // its window; the last entry, which the row carries on, those before the window of the next token.
  struct Caches {
    std::vector<int32_t> origin, limit;
  };
  Caches caches(const Batch& batch, std::span<const int64_t> carried, std::span<const RowCarry> carries) const;
};

}  // namespace quire
