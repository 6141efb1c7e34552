// Tokens that a model puts into what it reads, such as landmarks. One stands after every `period` tokens of a document,
// of which BOS is the first. It is read and never predicted, but takes a model position like any token. With period 3:
//
//   model position   0    1  2  3  4  5  6  7  8
//   read             BOS  a  b  *  c  d  e  *  f
//
// It stands only where a token follows: one that nothing follows could tell nobody what it gathered. So it is read
// together with the token after it, never before that token is known, and the token before it predicts the one after.
#pragma once

#include <cstdint>

namespace quire {

struct Insertion {
  int64_t period = 1;  // tokens from one inserted token to the next
  int64_t ids = 0;     // inserted tokens take turns: number k has id vocabulary + k % ids. 0: nothing is inserted

  bool any() const { return ids > 0; }
  // Model positions of a text of so many tokens.
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
