// Cuts the keys of a pass into blocks of a document, for kernels/block_attention.h.
#pragma once

#include <vector>

#include "layers/pass/forward.h"

namespace quire {

// The cut of a model: blocks of `period` positions, counted from the beginning of the document. With landmarks the last
// key of a block is its landmark. jump: each landmark but those of evaluation moves what follows it by a random number
// of positions in 1..jump instead of by 1 (Landmark Attention, Appendix E). controlled: the probability that a landmark
// is one of the context-miss token (Appendix D).
struct BlockCut {
  int64_t period = 1;
  bool landmarks = false;
  int64_t jump = 1;
  double controlled = 0;
};

// Tables of a pass. S = before + T keys of a row: what it carries of the block that its first document has begun, at
// the end of the first `before` places, and then its tokens.
struct KeyBlocks {
  int64_t before = 0;
  int64_t positions = 0;  // all positions are below it
  Tensor block;           // i32 [R, S]
  Tensor first;           // i32 [R, T]
  Tensor marks;           // u8 [R, S], with landmarks: 1, or 2 for those under control
  Tensor controlled;      // with controlled > 0: the same the other way round
  Tensor query_position;  // i32 [R, T]: counts from the beginning of the block in which the document's part begins
  Tensor block_on_host;   // block and first in main memory
  Tensor first_on_host;
  Tensor place;  // i32 [R, T]: places of the tokens within their blocks
};

// The position behind one, which a landmark moves by a jump and other tokens by 1.
inline int64_t next_position(int64_t position, int64_t jump) {
  return position + jump;
}

// tails: the positions of a begun block that each row carries; empty: none.
KeyBlocks key_blocks(const Forward& f, const BlockCut& cut, const std::vector<int64_t>& tails = {});

}  // namespace quire
