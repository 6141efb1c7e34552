// External memory of keys and values with k-nearest-neighbour lookup (Wu et al. 2022, Memorizing Transformers 3.1).
#pragma once

#include "kernels/op.h"

namespace quire::ops {

// True when each vector stored as this type has a scale.
constexpr bool has_scale(DType stored) {
  return stored == DType::i8 || stored == DType::f8;
}

// Each row has a ring of C slots. Entries are numbered from the oldest readable one: entry m of row r is in slot
// (head[r] - length[r] + m) mod C. Vectors are stored as f64 (beside f64 queries only), f32, bf16, or as i8 or f8 with
// one bf16 scale per vector: x = scale * stored number. Searching needs no values. H query heads, Hk key heads (query
// head h reads key head h / (H / Hk)), D key size, Dv value size.
struct KnnMemory {
  Tensor keys;         // [R, C, Hk, D]
  Tensor key_scale;    // bf16 [R, C, Hk], with i8 and f8
  Tensor values;       // [R, C, Hk, Dv]
  Tensor value_scale;  // bf16 [R, C, Hk], with i8 and f8
  Tensor head;         // i32 [R]
  Tensor length;       // i32 [R]
  // Keys and values lie in the host's memory: a GPU reads them over the bus.
  bool in_host_memory = false;

  template <typename F>
  void for_each_tensor(F& f) const {
    for (const Tensor* tensor : {&keys, &key_scale, &values, &value_scale, &head, &length}) f(*tensor);
  }
};

enum class KnnSearch {
  exact,
  // Approximate, as in the published code: for each b = 0..K-1 the best of the entries m = b, b + K, b + 2 K, ...
  bucketed,
};
// index i32 [R, T, H, K], score wide [R, T, H, K]: the K readable entries with the largest q.k, in descending order,
// ties to the older entry (exact), or in order of buckets; -1 and 0 where there are fewer. q [R, T, H, D]. Products of
// bf16, i8 or f8 keys are summed in f32. NaN ranks below every number, also below -inf: an entry with a NaN is found
// only where there are fewer than K others. Scratch memory is bounded by K and the size of tiles; it never grows with T
// times C.
QUIRE_OP(knn_search, const Tensor& index, const Tensor& score, const Tensor& q, const KnnMemory& memory,
         KnnSearch search);

// index [R, T, H, K] becomes -1 where keep u8 [R, T] is 0: those queries retrieve nothing.
QUIRE_OP(drop_entries, const Tensor& index, const Tensor& keep);

struct KnnAttentionInputs {
  Tensor q;      // [R, T, H, D], scaled
  Tensor index;  // i32 [R, T, H, K]; -1: no entry
  KnnMemory memory;

  template <typename F>
  void for_each_tensor(F& f) const {
    f(q);
    f(index);
    memory.for_each_tensor(f);
  }
};
// logit = q.k over the entries of index. out [R, T, H, Dv], lse wide [R, H, T]. With goes_on, out and lse must contain
// attention to other keys and are extended to both; otherwise they are overwritten, with 0 and -inf for a query without
// entries.
QUIRE_OP(knn_attention, const Tensor& out, const Tensor& lse, const KnnAttentionInputs& in, bool goes_on);
// dq [R, T, H, D] accumulates when `accumulate` is set; out and lse are those of the whole softmax. Keys and values are
// constant, and the choice of entries has no gradient.
QUIRE_OP(knn_attention_backward, const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& lse,
         const KnnAttentionInputs& in, bool accumulate);

// out [R, T, H, D] = g a + (1 - g) b with g = sigmoid(bias[h] + content[n, h]) of token n = r T + t (3.1); g = 0 in
// rows with open[r] = 0. bias [H] wide, content [R T, H] like a (undefined: zeros), open u8 [R] (undefined: all ones).
QUIRE_OP(gate_heads, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& content,
         const Tensor& open);
// dbias accumulates; da, db and dcontent [R T, H] are overwritten. dcontent is defined exactly when content is.
QUIRE_OP(gate_heads_backward, const Tensor& da, const Tensor& db, const Tensor& dbias, const Tensor& dcontent,
         const Tensor& dout, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& content,
         const Tensor& open);

// share = 1 - exp(part - whole): the probability that a softmax gives to keys outside a part of them. part and whole
// are the log-sum-exp of that part and of all keys, both wide. share is 0 where whole is -inf.
QUIRE_OP(softmax_share, const Tensor& share, const Tensor& part, const Tensor& whole);

// out i8 or f8 [.., D] = x / scale, rounded to nearest, ties to even; scale bf16 [..] is the least bf16 number with 127
// scale (i8) or 448 scale (f8) >= max |x|. A vector with a NaN or an infinity has scale NaN. x f32, f64 or bf16.
QUIRE_OP(quantize_vectors, const Tensor& out, const Tensor& scale, const Tensor& x);
QUIRE_OP(dequantize_vectors, const Tensor& out, const Tensor& in, const Tensor& scale);

}  // namespace quire::ops
