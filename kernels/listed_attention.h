// Attention of queries to lists of blocks of keys, which are read where they lie: blocks that a row has stored or that
// stand in the pass itself (Mohtashami and Jaggi 2023, "Landmark Attention"; Lu et al. 2025, "MoBA"; HiLS attention,
// 2026), and chunks that several queries read together (Hu et al. 2025, arXiv 2410.01651, section 3 and appendix B).
// The matrix of pairs is never stored.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size, Dv value size,
// N stored blocks, blocks of L keys. A row has G lists of up to K blocks, each for all heads, for the query heads of
// one key head, or for one head. Query t of row r reads list list[r, t] of its row. With s = scale * q.k, and p the
// softmax of s over the keys of one block, the last step is one of these:
//
//   softmax: one softmax over all keys of the blocks;
//   landmarks: the last key of a block is its landmark. The shares of the blocks are a softmax over the landmarks; a
//   share is divided among the other keys of its block by a softmax over these;
//   weights, where they are given: the sum over the blocks of weight * (sum of p_j value_j).
//
// A query with no block gets zero.
struct ListedAttentionInputs {
  Tensor q;       // [R, T, H, D]
  Tensor keys;    // [N, M, Hk, D], of the type of q, f32, bf16, i8 or f8: the first L of M keys of a block are read
  Tensor values;  // [N, M, Hk, Dv], of the type of keys
  // bf16 [N, M, Hk], with i8 and f8: a vector is its scale times the stored numbers (kernels/knn.h). Kernels for CUDA
  // refuse these types, and f32 beside another type of q.
  Tensor key_scale, value_scale;
  // Optional: keys and values of the pass, of the type of q, [R, S, Hk, D] and [R, S, Hk, Dv], and blocks of them: i32
  // [B, 2], for each the number of its first key among R S, in the row of the queries that read it, and its 1..L keys.
  Tensor own_keys, own_values, own_blocks;
  // i32 [R, G, 1 or Hk or H, K]: stored blocks, or -2 - b for block b of the pass, none twice in a list; -1: none
  Tensor blocks;
  Tensor list;  // i32 [R, T], optional: the list that a query reads, -1: none. Undefined: query t reads list t.
  // Wide, optional: [R, G, K] for lists, or [R, H, T, W], W >= K, for queries and heads; the others of the W weights
  // are not read, nor is the weight of an absent block.
  Tensor weight;
  // Keys of stored blocks are rotated by their places within their blocks. For a block that lies n blocks before the
  // one in which q's rotation begins, q is rotated further by row n of `table`; `rotation` gives these n, 0 for blocks
  // of the pass.
  Tensor rotation;  // i32, the shape of blocks
  Tensor table;     // made by rotary_table, position 0 first; optional
  double scale = 1;
  int64_t length = 0;  // L; 0: M
  bool landmarks = false;
  bool softmax_one = false;  // with weights: p_j = exp(s_j) / (1 + sum over i of exp(s_i))
  bool interleaved = false;  // pairs of features as in RotaryInputs

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &keys, &values, &key_scale, &value_scale, &own_keys, &own_values, &own_blocks,
                                 &blocks, &list, &weight, &rotation, &table}) {
      f(*tensor);
    }
  }
};

// Undefined tensors are not computed; every defined one is overwritten. Gradients of keys and values are 0 where no
// query reads; with landmarks they are constant, and so are stored ones of another type than q's. Blocks of the pass
// whose gradients (down_keys, down_values) are asked for have no key in common. dweight is 0 where no block is listed.
struct ListedAttentionGradients {
  Tensor dq, dkeys, dvalues, dweight;
  Tensor down_keys = {}, down_values = {};

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dkeys, &dvalues, &dweight, &down_keys, &down_values}) f(*tensor);
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
