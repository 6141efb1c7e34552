// The sizes of a call of attention to blocks, and the checks that the kernels of all devices make on its operands. They
// throw Error(internal). The values of integer operands are not checked, since the host would have to wait for the
// device.
#pragma once

#include "kernels/block_attention.h"

namespace quire {

struct BlockSizes {
  int64_t rows, queries, keys, heads, kv_heads, size, value_size;

  explicit BlockSizes(const ops::BlockAttentionInputs& in);
  int64_t before() const { return keys - queries; }  // keys before the first query
};

void check_block_attention(const BlockSizes& sizes, const Tensor& out, const Tensor& lse,
                           const ops::BlockAttentionInputs& in);
void check_block_attention_backward(const BlockSizes& sizes, const ops::BlockAttentionGradients& gradients,
                                    const Tensor& dout, const Tensor& dlse, const Tensor& out, const Tensor& lse,
                                    const ops::BlockAttentionInputs& in);

void check_place_blocks(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in);

}  // namespace quire
