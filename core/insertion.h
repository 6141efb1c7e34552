// Tokens that a model inserts into the text it reads, such as landmarks. One follows every `period` tokens of a
// document, counted from BOS, and takes a model position like any token. With period 3:
//
//   model position   0    1  2  3  4  5  6  7  8
//   read             BOS  a  b  *  c  d  e  *  f
//   predicted        a    b  c     d  e  f     EOS
//   with `predicted` a    b  *  c  d  e  *  f  EOS
//
// An inserted token is read and never predicted: the token before it predicts the token after it. It is inserted only
// where another token follows, because nothing would read one at the end, and is read together with that token.
//
// With `predicted` the token before an inserted one predicts it, and the inserted one predicts the token after it. It
// is then read together with the token before it, at the end of a document too, where it predicts EOS.
#pragma once

#include <cstdint>

namespace quire {

struct Insertion {
  int64_t period = 1;  // tokens from one inserted token to the next
  int64_t ids = 0;     // inserted tokens take turns: number k has id vocabulary + k % ids. 0: nothing is inserted
  bool predicted = false;

  bool any() const { return ids > 0; }
  bool predicts() const { return any() && predicted; }
  // Returns the number of model positions that a text of `tokens` tokens takes.
  int64_t positions(int64_t tokens) const {
    if (tokens <= 0) return 0;
    return predicts() ? position_of(tokens) : position_of(tokens - 1) + 1;
  }
  int64_t position_of(int64_t token) const { return any() ? token + token / period : token; }
  // Returns how many tokens stand before a position. For a position with a token this is the token's number.
  int64_t tokens_before(int64_t position) const { return any() ? position - position / (period + 1) : position; }
  bool is_inserted(int64_t position) const { return any() && position % (period + 1) == period; }
  // Returns which inserted token stands at a position with an inserted token: 0 .. ids - 1, to be added to the
  // vocabulary size.
  int64_t id_at(int64_t position) const { return position / (period + 1) % ids; }

  bool operator==(const Insertion&) const = default;
};

}  // namespace quire
