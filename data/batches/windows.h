// In every step each row reads a random slice of the token stream with empty state: the state of all rows is dropped at
// every step. Slices are drawn with replacement, from seed, step and row. Inserted tokens are part of the stream, so a
// slice may begin with one or anywhere between two of them.
#pragma once

#include "data/batches/token_stream.h"

namespace quire {

class Windows : public Sampler {
 public:
  Windows(std::span<const int64_t> offsets, const BatchOptions& options);

  Cursor start() const override { return cursor_of_steps(options_.data.rows); }
  void check(const Cursor& cursor) const override { check_cursor_of_steps(cursor, options_.data.rows); }
  std::vector<Piece> step(Cursor& cursor) const override;
  bool done(const Cursor& /*cursor*/) const override { return false; }

 private:
  TokenStream stream_;
  BatchOptions options_;
};

}  // namespace quire
