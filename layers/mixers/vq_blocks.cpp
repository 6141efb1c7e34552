#include "layers/mixers/vq_blocks.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

std::vector<int32_t> VqBlocks::first_visible(const Batch& batch, std::span<const int64_t> carried) const {
  std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length));
  for (int64_t r = 0; r < batch.rows; ++r) {
    int64_t begin = 0;  // of the document, as far as there are keys
    int32_t current = -1;
    for (int64_t t = 0; t < batch.length; ++t) {
      const auto at = static_cast<size_t>(batch.at(r, t));
      if (batch.segment[at] < 0) {
        first[at] = static_cast<int32_t>(batch.length + 1);
        continue;
      }
      if (batch.segment[at] != current) {
        current = batch.segment[at];
        QUIRE_CHECK(current == 0 || t % block == 0, "vq: a document begins at {}, inside a block of {}", t, block);
        begin = current == 0 ? t - carried[static_cast<size_t>(r)] : t;
      }
      const int64_t nearest = cache ? t / block * block : t;
      first[at] = static_cast<int32_t>(std::max(begin, nearest - window));
    }
  }
  return first;
}

VqBlocks::Caches VqBlocks::caches(const Batch& batch, std::span<const int64_t> carried,
                                  std::span<const RowCarry> carries) const {
  const int64_t blocks = (batch.length + block - 1) / block;
  Caches caches;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const int64_t length = carried[static_cast<size_t>(r)];
    int64_t origin = -length;
    int64_t limit = origin;
    int32_t current = 0;
    const auto add = [&] {
      caches.origin.push_back(static_cast<int32_t>(origin));
      caches.limit.push_back(static_cast<int32_t>(limit));
    };
    for (int64_t b = 0; b < blocks; ++b) {
      // A document begins where a block does. One without a token, behind the end of a document, is read by nobody.
      const int32_t segment = batch.segment[static_cast<size_t>(batch.at(r, b * block))];
      if (segment > current) {
        current = segment;
        origin = limit = b * block;
      }
      if (segment >= 0) limit = std::max(limit, b * block - window);
      add();
    }
    const RowCarry& carry = carries[static_cast<size_t>(r)];
    limit = std::max(limit, carry.begin + carry.count - window);
    add();
  }
  return caches;
}

}  // namespace quire
