// Tokens that a model inserts into the text it reads, such as landmarks. One follows every `period` tokens of a
// document, counted from BOS. It is read and never predicted, but takes a model position like any token. With period 3:
//
//   model position   0    1  2  3  4  5  6  7  8
//   read             BOS  a  b  *  c  d  e  *  f
//
// A token is inserted only where another token follows, because nothing would read one at the end. It is therefore read
// together with the token after it, and the token before it predicts the token after it.
#pragma once

#include <cstdint>

namespace quire {

struct Insertion {
  int64_t period = 1;  // tokens from one inserted token to the next
  int64_t ids = 0;     // inserted tokens take turns: number k has id vocabulary + k % ids. 0: nothing is inserted

  bool any() const { return ids > 0; }
  // The number of model positions that a text of `tokens` tokens takes.
  int64_t positions(int64_t tokens) const { return tokens > 0 ? position_of(tokens - 1) + 1 : 0; }
  int64_t position_of(int64_t token) const { return any() ? token + token / period : token; }
  // How many tokens stand before a position. Of a position with a token this is the token's number.
  int64_t tokens_before(int64_t position) const { return any() ? position - position / (period + 1) : position; }
  bool is_inserted(int64_t position) const { return any() && position % (period + 1) == period; }
  // Of an inserted token, above the vocabulary: 0 .. ids - 1.
  int64_t id_at(int64_t position) const { return position / (period + 1) % ids; }

  bool operator==(const Insertion&) const = default;
};

}  // namespace quire
