// Blockwise softmax attention of a segment over itself and carried keys, with an online softmax and its own backward.
#pragma once

#include <cstdint>
#include <optional>

#include "core/random.h"
#include "kernels/op.h"

namespace quire::ops {

// R rows, T queries, H query heads, Hk key heads (query head h reads key head h / (H / Hk)), D key size, Dv value size,
// C ring slots, N table entries. Key positions: 0..T-1 in the segment, -1 (newest), -2, ... in the ring. Query i sees
// the keys at first_visible[r, i] <= p <= i (p < i unless attend_self), or at first_visible[r, i] <= p <=
// last_visible[r, i] where that is given: a bidirectional encoder, with attend_self and without position terms. Their
// distance is d = i - p. A query that sees no key gets zero.
//
//   logit = scale * ((q + u).k + (q + v_bias).r[d]) + bias[h, d]
//
// bias is the T5 form (Raffel et al. 2020); u, v_bias and r are the Transformer-XL form (Dai et al. 2019, 3.3); both
// are optional. In both tables entry n belongs to distance N - 1 - n; N must exceed every visible distance unless
// terms_end is set. The CPU throws when a visible key lies before the ring or beyond a table. On a GPU such keys are
// not visible, because the host does not wait for first_visible to check it.
//
// bias, u, v_bias, lse and their gradients stay f32 when the others are bf16 (wide_type).

// The kernels that compute a call on a GPU: those of this project, or cuDNN's.
enum class AttentionKernels : uint8_t { own, cudnn };

// The form of first_visible that cuDNN can compute, as the host knows it. Every row has one document from its first
// query on. With b = min(first_visible[r, 0], 0), query i sees the keys at max(b, i - window) <= p <= i; queries after
// the last token of a row see nothing. With several_documents the documents of a row are the sequences of
// AttentionInputs: the one that begins with the row has b as above, for the others b is their first query. Queries of
// no sequence see nothing.
struct AttentionBand {
  std::optional<int64_t> window;
  int64_t carried = 0;   // the largest number of keys of the ring that any query sees
  bool padding = false;  // some queries see nothing
  bool several_documents = false;
};

// The columns of AttentionInputs::sequences.
enum SequenceNumber : int64_t { kSequenceRow, kSequenceBegin, kSequenceQueries, kSequenceNumbers };

struct AttentionInputs {
  Tensor q;              // [R, T, H, D]
  Tensor k;              // [R, T, Hk, D]
  Tensor v;              // [R, T, Hk, Dv]
  Tensor cache_k;        // [R, C, Hk, D]   optional, a ring
  Tensor cache_v;        // [R, C, Hk, Dv]
  Tensor cache_head;     // i32 [R]         slot of the next write
  Tensor first_visible;  // i32 [R, T]      at least -C
  Tensor last_visible;   // i32 [R, T]      optional, below T
  Tensor bias;           // [H, N]          optional
  Tensor r;              // [N, H, D]       optional, with u and v_bias [H, D]
  Tensor u;
  Tensor v_bias;
  double scale = 1;
  bool attend_self = true;
  // Keys at distances beyond the tables are visible and have no position terms (Transformer-VQ: keys that are about to
  // leave the window).
  bool terms_end = false;
  // Dropout of probabilities. The random numbers come from the counter (scope, global row, query, e / 4) with e = h *
  // (C + T) + d, or e = h * (C + 2 T) + d + T with last_visible.
  double dropout = 0;
  RandomKey key;
  uint32_t scope = 0;
  int64_t first_row = 0;
  // cudnn requires that first_visible equals `band`, and that there are no position terms, no dropout, no last_visible
  // and no query that does not see itself. lse then has the form that cuDNN's own backward pass reads: in natural
  // units, but not -inf where a query sees nothing, and [R, T, H] with several documents. Forward and backward pass
  // must therefore name the same kernels, and nothing else may read lse. Devices other than a GPU compute the same with
  // their only kernels.
  AttentionKernels kernels = AttentionKernels::own;
  AttentionBand band;
  Tensor sequences;  // i32 [sequences, kSequenceNumbers]  with band.several_documents, in the order of rows and queries

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&q, &k, &v, &cache_k, &cache_v, &cache_head, &first_visible, &last_visible, &bias, &r,
                                 &u, &v_bias, &sequences}) {
      f(*tensor);
    }
  }
};

// Every defined tensor is overwritten; undefined ones are not computed.
struct AttentionGradients {
  Tensor dq, dk, dv;
  Tensor dcache_k, dcache_v;  // optional: slots outside the visible range become zero
  Tensor dbias;
  Tensor dr, du, dv_bias;
  Tensor delta = {};  // [R, H, T] wide, read only: attention_delta of dout and out, if it was computed already

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&dq, &dk, &dv, &dcache_k, &dcache_v, &dbias, &dr, &du, &dv_bias, &delta}) f(*tensor);
  }
};

// out [R, T, H, Dv]; lse [R, H, T]: log of the softmax denominator, -inf for a query that sees no key.
QUIRE_OP(attention, const Tensor& out, const Tensor& lse, const AttentionInputs& in);
QUIRE_OP(attention_backward, const AttentionGradients& gradients, const Tensor& dout, const Tensor& out,
         const Tensor& lse, const AttentionInputs& in);

// delta [R, H, T] wide: dout . out over the features of a query and head of [R, T, H, Dv]. A softmax subtracts it from
// the gradient of each of its probabilities.
QUIRE_OP(attention_delta, const Tensor& delta, const Tensor& dout, const Tensor& out);
// swiglu_backward for out = silu(gate) attended, which also computes the delta of dattended and attended in the same
// pass. All but delta are [R, T, H, Dv].
QUIRE_OP(attention_gate_backward, const Tensor& dgate, const Tensor& dattended, const Tensor& delta, const Tensor& dout,
         const Tensor& gate, const Tensor& attended);

}  // namespace quire::ops
