// Attention to chosen chunks with given weights (HiLS attention, 2026): a query attends to each chunk that it has
// chosen with a softmax over the chunk's keys, and adds up the results by weights that it was given. A chunk is
// multiplied by all queries that have chosen it together, and the matrix of pairs is never stored.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size, Dv value size,
// C chunks of L keys for each row. The query heads of a key head choose the same K chunks. With s = scale * q.k query t
// and head h get
//
//   sum over n < K of weight[h, t, n] * sum over j of p_j v_j,  p_j = exp(s_j) / sum over i of exp(s_i),
//
// where i and j run over the keys of chunk chosen[h / (H / Hk), t, n].
struct ChunkAttentionInputs {
  Tensor q;       // [R, T, H, D]
  Tensor keys;    // [R, Hk, C, L, D]
  Tensor values;  // [R, Hk, C, L, Dv]
  Tensor weight;  // wide [R, H, T, W], W >= K; the others of the W weights are not read
  Tensor chosen;  // i32 [R, Hk, T, K]: below C, none twice; -1: none
  Tensor begin;   // i32 [R, Hk, C + 1], and
  Tensor reads;   // i32 [R, Hk, T K]: those of chunk_reads
  double scale = 1;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &keys, &values, &weight, &chosen, &begin, &reads}) f(*tensor);
  }
};

// All are overwritten; dweight is 0 where nothing was chosen and beyond the K weights.
struct ChunkAttentionGradients {
  Tensor dq, dkeys, dvalues, dweight;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dkeys, &dvalues, &dweight}) f(*tensor);
  }
};

// Lists, for each chunk, who has chosen it: entries begin[c], ..., begin[c + 1] - 1 of reads are the numbers t K + n
// with chosen[t, n] = c, in ascending order. The entries behind the last chunk are -1.
QUIRE_OP(chunk_reads, const Tensor& begin, const Tensor& reads, const Tensor& chosen);
// out [R, T, H, Dv]; lse wide [R, H, T, K]: log of the divisor of p, 0 where nothing is chosen.
QUIRE_OP(chunk_attention, const Tensor& out, const Tensor& lse, const ChunkAttentionInputs& in);
QUIRE_OP(chunk_attention_backward, const ChunkAttentionGradients& gradients, const Tensor& dout, const Tensor& lse,
         const ChunkAttentionInputs& in);

}  // namespace quire::ops
