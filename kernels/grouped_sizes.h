// The sizes of a call of grouped cross-attention, and the checks that the kernels of all devices make on its operands.
// They throw Error(internal). The values of integer operands are not checked, since the host would have to wait for the
// device.
#pragma once

#include "kernels/grouped_cross_attention.h"

namespace quire {

struct GroupedSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size;
  int64_t chunks, length;  // N and S
  int64_t lists, chosen;   // L and K

  explicit GroupedSizes(const ops::GroupedCrossAttentionInputs& in);
  int64_t group() const { return heads / kv_heads; }  // query heads per key head
};

void check_grouped_cross_attention(const GroupedSizes& sizes, const Tensor& out, const Tensor& lse,
                                   const ops::GroupedCrossAttentionInputs& in);
void check_grouped_cross_attention_backward(const GroupedSizes& sizes,
                                            const ops::GroupedCrossAttentionGradients& gradients, const Tensor& dout,
                                            const Tensor& lse, const ops::GroupedCrossAttentionInputs& in);

}  // namespace quire
