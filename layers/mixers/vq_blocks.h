// Computes which tokens the queries of each block of a subsequence see individually, and which through the cache of
// codewords.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"

namespace quire {

struct VqBlocks {
  int64_t block = 0;   // L
  int64_t window = 0;  // M: tokens before a block that are seen individually
  bool cache = true;   // older tokens are seen through their codewords; false: a token sees the M tokens before itself

  // First visible key per query, [R * T], for ops::AttentionInputs. Segment s begins with initial[s] <= M tokens.
  std::vector<int32_t> first_visible(const Batch& batch, std::span<const Segment> segments,
                                     std::span<const int64_t> initial) const;

  // For ops::CodeCacheInputs, [2, R, B + 1], origins and limits: the cache that a block reads holds all tokens of its
  // document before its window; the last entry, which the row carries on, those before the window of the next token.
  std::vector<int32_t> caches(const Batch& batch, std::span<const Segment> segments,
                              std::span<const int64_t> initial) const;
};

}  // namespace quire
