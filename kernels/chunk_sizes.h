// The sizes of a call of attention to chosen chunks, and the checks that the kernels of all devices make on its
// operands. They throw Error(internal).
#pragma once

#include "kernels/chunk_attention.h"

namespace quire {

struct ChunkSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size;
  int64_t chunks, length;  // C and L
  int64_t chosen, width;   // K and W

  explicit ChunkSizes(const ops::ChunkAttentionInputs& in);
  int64_t group() const { return heads / kv_heads; }  // query heads per key head
};

void check_chunk_reads(const Tensor& begin, const Tensor& reads, const Tensor& chosen);
void check_chunk_attention(const ChunkSizes& sizes, const Tensor& out, const Tensor& lse,
                           const ops::ChunkAttentionInputs& in);
void check_chunk_attention_backward(const ChunkSizes& sizes, const ops::ChunkAttentionGradients& gradients,
                                    const Tensor& dout, const Tensor& lse, const ops::ChunkAttentionInputs& in);

}  // namespace quire
