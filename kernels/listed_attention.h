// Attention of queries to lists of blocks of keys, which are read where they lie: blocks that a row has stored
// (Mohtashami and Jaggi 2023, "Landmark Attention"; Lu et al. 2025, "MoBA"), and chunks that several queries read
// together (Hu et al. 2025, arXiv 2410.01651, section 3 and appendix B). The matrix of pairs is never stored.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size, Dv value size,
// N blocks of L keys. A row has G lists of up to K blocks: one for all heads, or one for each. Query t of row r reads
// list list[r, t] of its row. With s = scale * q.k, and p the softmax of s over the keys of one block, the last step is
// one of these:
//
//   softmax: one softmax over all keys of the blocks;
//   landmarks: the last key of a block is its landmark. The shares of the blocks are a softmax over the landmarks; a
//   share is divided among the other keys of its block by a softmax over these;
//   weights, where they are given: the sum over the blocks of weight * (sum of p_j value_j).
//
// A query with no block gets zero.
struct ListedAttentionInputs {
  Tensor q;       // [R, T, H, D]
  Tensor keys;    // [N, L, Hk, D], of the type of q or bf16
  Tensor values;  // [N, L, Hk, Dv], of the type of keys
  Tensor blocks;  // i32 [R, G, 1 or H, K]: numbers of blocks; -1: none
  // i32 [R, T], optional: the list that a query reads, -1: none; all queries that read a list follow each other.
  // Undefined: query t reads list t.
  Tensor list;
  // wide [R, G, K], optional: requires `list`, one list for all heads and no block twice in a list. The weight of an
  // absent block is not read.
  Tensor weight;
  // Keys are rotated by their places within their blocks. For a block that lies n blocks before the one in which q's
  // rotation begins, q is rotated further by row n of `table`; `rotation` gives these n. Without weights.
  Tensor rotation;  // i32, the shape of blocks
  Tensor table;     // made by rotary_table, position 0 first; optional
  double scale = 1;
  bool landmarks = false;
  bool softmax_one = false;  // with weights: p_j = exp(s_j) / (1 + sum over i of exp(s_i))
  bool interleaved = false;  // pairs of features as in RotaryInputs

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &keys, &values, &blocks, &list, &weight, &rotation, &table}) f(*tensor);
  }
};

// Undefined tensors are not computed; every defined one is overwritten. dq must be defined without weights. dkeys and
// dvalues are 0 for blocks that no query reads; without weights, and stored in another type than q's, keys and values
// are constant. dweight is 0 where no block is listed.
struct ListedAttentionGradients {
  Tensor dq, dkeys, dvalues, dweight;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dkeys, &dvalues, &dweight}) f(*tensor);
  }
};

// out [R, T, H, Dv]. lse, wide: [R, H, T], the log of the sum over landmarks or over keys; with weights [R, H, T, K],
// the log of the divisor of p by entry of the list, 0 where there is no block. mass, without weights, optional: wide
// [R, H, T, K], the log of what each block of the list adds to the sum, -inf where there is none.
QUIRE_OP(listed_attention, const Tensor& out, const Tensor& lse, const Tensor& mass, const ListedAttentionInputs& in);
// dlse [R, H, T], optional: the gradient of lse. With weights neither dlse nor out is read.
QUIRE_OP(listed_attention_backward, const ListedAttentionGradients& gradients, const Tensor& dout, const Tensor& dlse,
         const Tensor& out, const Tensor& lse, const ListedAttentionInputs& in);

}  // namespace quire::ops
