// The sizes of an attention call, and what kernels of every device ask of its operands: one type, contiguous, shapes
// that fit. Throws Error(internal). What first_visible holds is not looked at: a device would have to be waited for.
#pragma once

#include "kernels/attention.h"

namespace quire {

struct AttentionSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size, slots, entries;
  // Dropout counts the distances of a head from -first_distance on.
  int64_t first_distance, distances;

  explicit AttentionSizes(const ops::AttentionInputs& in);
};

void check_attention(const AttentionSizes& sizes, const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in);
void check_attention_backward(const AttentionSizes& sizes, const ops::AttentionGradients& gradients, const Tensor& dout,
                              const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in);

}  // namespace quire
