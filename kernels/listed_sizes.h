// The sizes of a call of listed attention, and the checks that the kernels of all devices make on its operands. They
// throw Error(internal). The values of integer operands are not checked, since the host would have to wait for the
// device.
#pragma once

#include "kernels/listed_attention.h"

namespace quire {

struct ListedSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size;
  int64_t blocks, stored_length, length;  // N, M and L
  int64_t lists, list_heads, chosen;      // G, 1 or Hk or H, and K
  int64_t own_keys, own_blocks;           // S and B
  int64_t width;                          // W, K with weights of lists

  explicit ListedSizes(const ops::ListedAttentionInputs& in);
  int64_t group() const { return heads / kv_heads; }  // query heads per key head
  // Query heads of a key head that read a list together.
  int64_t together() const { return list_heads <= kv_heads ? group() : 1; }
};

void check_listed_attention(const ListedSizes& sizes, const Tensor& out, const Tensor& lse, const Tensor& mass,
                            const ops::ListedAttentionInputs& in);
void check_listed_attention_backward(const ListedSizes& sizes, const ops::ListedAttentionGradients& gradients,
                                     const Tensor& dout, const Tensor& dlse, const Tensor& out, const Tensor& lse,
                                     const ops::ListedAttentionInputs& in);
// For kernels that read no i8 and f8: fetch_entries (layers/carried/) gives layers such blocks in the type that they
// compute in.
void refuse_scaled_blocks(const ops::ListedAttentionInputs& in);

}  // namespace quire
