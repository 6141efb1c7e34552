// Every row and step is a random slice of the token stream, read without anything before it: the state of all rows is
// dropped at every step. Slices are drawn with replacement; the draw depends on seed, step and row. What a model
// inserts stands in the stream, so a slice may begin anywhere between two inserted tokens, or with one.
#pragma once

#include "data/batches/token_stream.h"

namespace quire {

class Windows : public Sampler {
 public:
  Windows(std::span<const int64_t> offsets, const BatchOptions& options);

  Cursor start() const override { return cursor_of_steps(options_.rows); }
  void check(const Cursor& cursor) const override { check_cursor_of_steps(cursor, options_.rows); }
  std::vector<Piece> step(Cursor& cursor) const override;
  bool done(const Cursor& /*cursor*/) const override { return false; }

 private:
  TokenStream stream_;
  BatchOptions options_;
};

}  // namespace quire
