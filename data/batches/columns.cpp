#include "data/batches/columns.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

Columns::Columns(std::span<const int64_t> offsets, const BatchOptions& options)
    : stream_(offsets, options), options_(options) {
  if (stream_.tokens() < options.rows) {
    fail(ErrorKind::config, "data.rows: {} columns cannot be cut out of {} positions; use fewer rows", options.rows,
         stream_.tokens());
  }
  const int64_t longest = options.insertion.positions((stream_.tokens() + options.rows - 1) / options.rows);
  steps_ = (longest + options.subsequence - 1) / options.subsequence;
}

int64_t Columns::top_of(int64_t row) const {
  // Computed without rows * tokens, which may overflow.
  const int64_t each = stream_.tokens() / options_.rows;
  const int64_t longer = stream_.tokens() % options_.rows;
  return row * each + std::min(row, longer);
}

std::vector<Piece> Columns::step(Cursor& cursor) const {
  std::vector<Piece> pieces;
  if (done(cursor)) return pieces;
  const int64_t place = cursor.next_place++ % steps_ * options_.subsequence;
  for (int64_t row = 0; row < options_.rows; ++row) {
    const int64_t top = top_of(row);
    const int64_t positions = options_.insertion.positions(top_of(row + 1) - top);
    const int64_t count = std::min(options_.subsequence, positions - place);
    if (count > 0) stream_.read(row, top, place, count, place, pieces);
  }
  return pieces;
}

}  // namespace quire
