// Grouped cross-attention (Hu et al. 2025, arXiv 2410.01651, section 3 and appendix B): queries attend to chosen chunks
// of keys, to each with a separate softmax, and add the results with given weights. Chunks are read in place, and the
// matrix of pairs is never stored.
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size, Dv value size,
// N chunks of S keys. A row has L lists of up to K chunks; all queries that read a list follow each other in the row.
// With s = scale * q.k and l = list[r, t], query t of row r gets
//
//   sum over k of weight[r, l, k] * sum over j of p_j value_j,  p_j = exp(s_j) / sum over i of exp(s_i),
//
// where i and j run over the keys of chunk chosen[r, l, k].
struct GroupedCrossAttentionInputs {
  Tensor q;       // [R, T, H, D]
  Tensor keys;    // [N, S, Hk, D], of the type of q or bf16
  Tensor values;  // [N, S, Hk, Dv], of the type of keys
  Tensor weight;  // wide [R, L, K]
  Tensor chosen;  // i32 [R, L, K]: numbers of chunks, none twice in a list; -1: none, whatever its weight is
  Tensor list;    // i32 [R, T]: the list that the query reads; -1: none, it gets zero
  double scale = 1;
  bool softmax_one = false;  // p_j = exp(s_j) / (1 + sum over i of exp(s_i))

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &keys, &values, &weight, &chosen, &list}) f(*tensor);
  }
};

// Undefined tensors are not computed. Every defined one is overwritten: dweight is 0 where no chunk is chosen, dkeys
// and dvalues are 0 for chunks that no query reads. Keys and values stored in another type than q's are constant.
struct GroupedCrossAttentionGradients {
  Tensor dq, dkeys, dvalues, dweight;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dkeys, &dvalues, &dweight}) f(*tensor);
  }
};

// out [R, T, H, Dv]; lse wide [R, H, T, K]: log of the divisor of p, by entry of the list; 0 where no chunk is chosen.
QUIRE_OP(grouped_cross_attention, const Tensor& out, const Tensor& lse, const GroupedCrossAttentionInputs& in);
QUIRE_OP(grouped_cross_attention_backward, const GroupedCrossAttentionGradients& gradients, const Tensor& dout,
         const Tensor& lse, const GroupedCrossAttentionInputs& in);

}  // namespace quire::ops
