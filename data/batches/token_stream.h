// All documents of a split as one text, in the order of the split. A document has n + 1 tokens, from BOS to the token
// that predicts EOS: BOS marks its beginning and EOS is predicted at its end, as when documents are read one by one.
#pragma once

#include <span>
#include <vector>

#include "data/batches/sampler.h"

namespace quire {

class TokenStream {
 public:
  // Offsets are those of Split::offsets(); they must outlive this.
  TokenStream(std::span<const int64_t> offsets, const BatchOptions& options);

  int64_t tokens() const;  // counts every BOS
  // Appends the pieces that fill the beginning of a row with `count` model positions from `begin` on. Positions and
  // inserted tokens are counted from token `top` of the stream. `place` is the place of the first piece.
  void read(int64_t row, int64_t top, int64_t begin, int64_t count, int64_t place, std::vector<Piece>& pieces) const;

 private:
  int64_t begin_of(int64_t document) const;
  int64_t documents() const { return static_cast<int64_t>(offsets_.size()) - 1; }

  std::span<const int64_t> offsets_;
  Insertion insertion_;
};

// Returns a cursor that counts steps and nothing else.
Cursor cursor_of_steps(int64_t rows);
// Throws Error(checkpoint) for any other cursor.
void check_cursor_of_steps(const Cursor& cursor, int64_t rows);

}  // namespace quire
