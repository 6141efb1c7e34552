// Vector-quantised keys and attention over them (Transformer-VQ); formulas in kernels/vq.h.
#pragma once

#include "autograd/functions/attention.h"
#include "kernels/vq.h"

namespace quire {

struct Quantized {
  Variable keys;   // [R, T, Hk, D]: exact codewords; the gradient goes to x unchanged (straight-through), or nowhere
  Tensor codes;    // i32 [R, T, Hk]
  Variable error;  // f64 [1]: squared distances to the codewords over heads and unmasked tokens, the commitment loss
};
// x [R, T, Hk, D], codebook [Hk, S, D] wide, mask u8 [R * T].
Quantized quantize(Tape& tape, const Variable& x, const Tensor& codebook, const Tensor& mask, bool straight_through);

struct VqAttentionVariables {
  // q, k (quantised), v of the subsequence; cache_k, cache_v: rings with the carried window, constants. Position terms
  // [M + 1 entries] belong to distances M..0; beyond them there are none.
  AttentionVariables keys;
  Tensor codebook;     // [Hk, S, D] wide; undefined: no cache of older tokens
  Variable gate = {};  // [R, T, H, Dv] or as a line of them; undefined: none
};

struct VqAttentionSettings {
  // first_visible: the first key that a query sees individually; cache_head, scale and attend_self as for attention().
  // Dropout applies only to keys seen individually. vq_attention() sets terms_end.
  ops::AttentionInputs attention;
  ops::CodeCacheInputs caches;  // v, window_v and window_head are taken from the variables
  int64_t block = 0;            // L
  // false: everything before a block is constant, the keys and values of the same subsequence included.
  bool through_cache = true;
  // i32 [R, T]: the first key of its own block that a query sees, max(first_visible, start of the block). Used only
  // when through_cache is false.
  Tensor first_in_block;
};

struct VqAttentionResult {
  Variable out;  // [R, T, H, Dv], times silu(gate) if there is a gate
  Tensor mean;   // [R, Hk, S, Dv], carried to the next subsequence; undefined without a codebook
  Tensor count;  // [R, Hk, S]
};
VqAttentionResult vq_attention(Tape& tape, const VqAttentionVariables& x, const VqAttentionSettings& settings);

}  // namespace quire
