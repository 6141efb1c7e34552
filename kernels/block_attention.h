// Attention to a past that is cut into blocks: grouped softmax with landmarks (Mohtashami and Jaggi 2023, "Landmark
// Attention", section 3.1), and softmax that ends at the border of a block. The matrix of pairs is never stored.
#pragma once

#include "core/random.h"
#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, S >= T keys, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size,
// Dv value size. The last T keys stand at the places of the queries. The keys of a row are cut into blocks by `block`,
// which does not decrease along a row; the block of a query is that of the key at its place. With landmarks the last
// key of a block may be its landmark; the other keys are regular. Query i sees
//
//   own block: the regular keys up to its place;
//   earlier blocks: those from first[r, i] on.
//
// With s = scale * q.k, the gates of a query are its keys in its own block and, for each earlier block it sees, the
// landmark of that block. The gates are normalised by a softmax; an earlier block's share is divided among its regular
// keys by a softmax over these. An earlier block without a landmark, if the block was left open, is not seen. Without
// landmarks every visible key is a gate: plain softmax over the keys of these blocks. So is every visible regular
// key with landmarks that are not `grouped`; then nobody sees these.
struct BlockAttentionInputs {
  Tensor q;      // [R, T, H, D]
  Tensor k;      // [R, S, Hk, D]
  Tensor v;      // [R, S, Hk, Dv]
  Tensor block;  // i32 [R, S]: the number of the block, -1 for keys that no query sees
  // i32 [R, T]: the first block that the query sees; above its own block: the query sees nothing and gets zero
  Tensor first;
  Tensor landmark;  // u8 [R, S], optional: 1 for landmarks, 2 for those whose blocks are closed to later queries
  double scale = 1;
  bool grouped = true;    // landmarks are gates; false requires no dropout and no empty_blocks_count
  bool own_block = true;  // false: no query sees its own block
  // A landmark whose block has no regular keys takes its share of the softmax, which is then lost, as in the published
  // code. Otherwise such a landmark is no gate.
  bool empty_blocks_count = false;
  // Dropout of the shares of earlier blocks, with landmarks. The random numbers come from the counter (scope, global
  // row, query, e / 4) with e = h * S + the number of the block.
  double dropout = 0;
  RandomKey key;
  uint32_t scope = 0;
  int64_t first_row = 0;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &k, &v, &block, &first, &landmark}) f(*tensor);
  }
};

// Every defined tensor is overwritten; undefined ones are not computed. dq must be defined.
struct BlockAttentionGradients {
  Tensor dq, dk, dv;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dk, &dv}) f(*tensor);
  }
};

// out [R, T, H, Dv]; lse wide [R, H, T]: log of the sum over the gates, -inf for a query without any.
QUIRE_OP(block_attention, const Tensor& out, const Tensor& lse, const BlockAttentionInputs& in);
// dlse wide [R, H, T], optional: the gradient of lse.
QUIRE_OP(block_attention_backward, const BlockAttentionGradients& gradients, const Tensor& dout, const Tensor& dlse,
         const Tensor& out, const Tensor& lse, const BlockAttentionInputs& in);

inline constexpr int64_t kMaxChosenBlocks = 256;  // for one query

// Places the chosen blocks. A row has length[r] blocks in a ring of C slots, whose next write goes to head[r]. Of the
// candidates that `index` lists, number first[r] is the oldest one in the ring; numbers from `stored` on are blocks of
// the subsequence itself. The age of a stored block counts blocks back from the newest, 1.
struct BlockPlacing {
  Tensor index;   // i32 [R, .., K], -1: none
  Tensor head;    // i32 [R]
  Tensor length;  // i32 [R]
  Tensor first;   // i32 [R]
  int64_t slots;  // C
  int64_t stored;
  // Stingy positions (Landmark Attention, section 3.2.1): `places` i32 [R] blocks stand before the current one, however
  // many were read. Of n chosen blocks, sorted by age, block i stands at place i or, when it is among the n newest of
  // the row, at the i-th of the last n places. Undefined: blocks stand where they were read.
  Tensor places;
  // Lists that rows carry (Hu et al. 2025, "DRT"), index [R, N, K]: the outputs have one list more, [R, 1 + N, K], the
  // first one of the blocks of the ages i32 [R, K], 0: none. No list is sorted.
  Tensor age;
  Tensor count;  // i32 [R], with ages: blocks by which the subsequence makes the document longer
  // Blocks of the subsequence that a row may have, B: listed_attention reads both kinds. Behind the stored ones `slot`
  // has -2 - (r B + number) for those of the subsequence, with rotation 0.
  int64_t own_blocks = 0;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&index, &head, &length, &first, &places, &age, &count}) f(*tensor);
  }
};
// All outputs are i32 of the shape of index. slot and rotation, for ListedAttentionInputs: stored blocks by age, oldest
// first, then -1; the slots of row r begin at r C. own: for blocks of the subsequence their number, counted from 0,
// else -1. With ages: slot, or -1; own: the numbers of row r begin at r N; rotation: the age of each block at the end
// of the subsequence, 0: none.
QUIRE_OP(place_blocks, const Tensor& slot, const Tensor& rotation, const Tensor& own, const BlockPlacing& in);

}  // namespace quire::ops
