#include "data/batches/windows.h"

#include <algorithm>

#include "core/check.h"
#include "core/random.h"

namespace quire {

namespace {

constexpr uint32_t kScope = hash_scope("data.windows");

}  // namespace

Windows::Windows(std::span<const int64_t> offsets, const BatchOptions& options)
    : stream_(offsets, options), options_(options) {
  QUIRE_CHECK(options.endless, "windows: random slices never read everything");
}

std::vector<Piece> Windows::step(Cursor& cursor) const {
  std::vector<Piece> pieces;
  const int64_t step = cursor.next_place++;
  const int64_t positions = options_.insertion.positions(stream_.tokens());
  const int64_t count = std::min(options_.data.subsequence, positions);
  const auto choices = static_cast<uint64_t>(positions - count + 1);
  for (int64_t row = 0; row < options_.data.rows; ++row) {
    const auto bits = philox(RandomKey::of(options_.seed, step), kScope, static_cast<uint32_t>(row), 0,
                             static_cast<uint32_t>(step >> 32));
    const uint64_t drawn = uint64_t{bits[0]} << 32 | bits[1];
    stream_.read(row, 0, static_cast<int64_t>(drawn % choices), count, 0, pieces);
  }
  return pieces;
}

}  // namespace quire
