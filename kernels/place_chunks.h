// Finds the slots of the chunks that queries have chosen (Hu et al. 2025, "DRT"): some belong to the subsequence and
// some are stored.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// A row has N places for chunks of the subsequence, of which count[r] are complete, and a ring of `slots` stored
// chunks, whose next write goes to head[r]. A candidate below `stored` is a stored chunk, of which `stored` - 1 is the
// newest; from `stored` on it is a chunk of the subsequence. An age counts chunks back from the present end of the
// document, 1 for the newest.
struct ChunkPlacing {
  Tensor age;    // i32 [R, K]: the list that an earlier subsequence has left, by age; 0: none
  Tensor index;  // i32 [R, N, K]: the lists of the subsequence, by candidate; -1: none
  Tensor head;   // i32 [R]
  Tensor count;  // i32 [R]
  int64_t stored = 0;
  int64_t slots = 0;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&age, &index, &head, &count}) f(*tensor);
  }
};
// All outputs are i32 [R, 1 + N, K], the list of the earlier subsequence first. slot: slots of stored chunks, those of
// row r begin at r slots, else -1; own: places of chunks of the subsequence, those of row r begin at r N, else -1;
// later: ages at the end of the subsequence, 0: none.
QUIRE_OP(place_chunks, const Tensor& slot, const Tensor& own, const Tensor& later, const ChunkPlacing& in);

}  // namespace quire::ops
