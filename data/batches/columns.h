// The corpus as `rows` contiguous columns of the token stream, one a row, read from top to bottom (Dai et al. 2019). A
// row's state is dropped at the top of its column, so once an epoch, and never between documents. Columns differ by at
// most one token; the rest of the last subsequence of an epoch is padding. Inserted tokens are counted from the top of
// each column, so they have the same positions in all rows.
#pragma once

#include "data/batches/token_stream.h"

namespace quire {

class Columns : public Sampler {
 public:
  Columns(std::span<const int64_t> offsets, const BatchOptions& options);

  Cursor start() const override { return cursor_of_steps(options_.data.rows); }
  void check(const Cursor& cursor) const override { check_cursor_of_steps(cursor, options_.data.rows); }
  std::vector<Piece> step(Cursor& cursor) const override;
  bool done(const Cursor& cursor) const override { return !options_.endless && cursor.next_place >= steps_; }
  int64_t steps_per_epoch() const { return steps_; }

 private:
  int64_t top_of(int64_t row) const;  // index of a token of the stream

  TokenStream stream_;
  BatchOptions options_;
  int64_t steps_ = 0;  // steps of an epoch
};

}  // namespace quire
