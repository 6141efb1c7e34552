#include "layers/mixers/vq_blocks.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

std::vector<int32_t> VqBlocks::first_visible(const Batch& batch, std::span<const Segment> segments,
                                             std::span<const int64_t> initial) const {
  std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length), static_cast<int32_t>(batch.length + 1));
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    QUIRE_CHECK(segment.carried || segment.begin % block == 0, "vq: a document begins at {}, inside a block of {}",
                segment.begin, block);
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      if (!batch.has_token(batch.at(segment.row, t))) continue;
      const int64_t nearest = cache ? t / block * block : t;
      first[static_cast<size_t>(batch.at(segment.row, t))] =
          static_cast<int32_t>(std::max(segment.begin - initial[s], nearest - window));
    }
  }
  return first;
}

std::vector<int32_t> VqBlocks::caches(const Batch& batch, std::span<const Segment> segments,
                                      std::span<const int64_t> initial) const {
  const int64_t caches = (batch.length + block - 1) / block + 1;
  // A row without tokens has an empty cache. So do blocks without one, which nobody reads.
  std::vector<int32_t> origins(static_cast<size_t>(batch.rows * caches), 0);
  std::vector<int32_t> limits = origins;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t origin = segment.begin - initial[s];
    const int64_t end = segment.begin + segment.count;
    // From the block in which the segment begins to the end of the row, or to where the next one takes over.
    for (int64_t b = segment.begin / block; b < caches; ++b) {
      const int64_t next = b + 1 == caches ? end : std::min(b * block, (end - 1) / block * block);
      const auto at = static_cast<size_t>(segment.row * caches + b);
      origins[at] = static_cast<int32_t>(origin);
      limits[at] = static_cast<int32_t>(std::max(origin, next - window));
    }
  }
  origins.insert(origins.end(), limits.begin(), limits.end());
  return origins;
}

}  // namespace quire
