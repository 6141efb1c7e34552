// The sizes of a call of listed attention, and the checks that the kernels of all devices make on its operands. They
// throw Error(internal). The values of integer operands are not checked, since the host would have to wait for the
// device.
#pragma once

#include "kernels/listed_attention.h"

namespace quire {

struct ListedSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size;
  int64_t blocks, length;             // N and L
  int64_t lists, list_heads, chosen;  // G, 1 or H, and K

  explicit ListedSizes(const ops::ListedAttentionInputs& in);
  int64_t group() const { return heads / kv_heads; }  // query heads per key head
};

void check_listed_attention(const ListedSizes& sizes, const Tensor& out, const Tensor& lse, const Tensor& mass,
                            const ops::ListedAttentionInputs& in);
void check_listed_attention_backward(const ListedSizes& sizes, const ops::ListedAttentionGradients& gradients,
                                     const Tensor& dout, const Tensor& dlse, const Tensor& out, const Tensor& lse,
                                     const ops::ListedAttentionInputs& in);

}  // namespace quire
