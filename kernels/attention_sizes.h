// The sizes of an attention call, and the checks that the kernels of all devices make on its operands: one type,
// contiguous, matching shapes. They throw Error(internal). The values in first_visible are not checked, since the host
// would have to wait for the device.
#pragma once

#include "kernels/attention.h"

namespace quire {

struct AttentionSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size, slots, entries;
  // Dropout numbers the distances of a head -first_distance, -first_distance + 1, ...: `distances` of them.
  int64_t first_distance, distances;

  explicit AttentionSizes(const ops::AttentionInputs& in);
};

void check_attention(const AttentionSizes& sizes, const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in);
void check_attention_backward(const AttentionSizes& sizes, const ops::AttentionGradients& gradients, const Tensor& dout,
                              const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in);
void check_attention_delta(const Tensor& delta, const Tensor& dout, const Tensor& out);
void check_attention_gate_backward(const Tensor& dgate, const Tensor& dattended, const Tensor& delta,
                                   const Tensor& dout, const Tensor& gate, const Tensor& attended);

}  // namespace quire
