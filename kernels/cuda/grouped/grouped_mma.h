// Code that the kernels of grouped cross-attention in bf16 on tensor cores share (attention_mma.h). A warp has 16
// queries of a list, or 16 keys of a chunk, and is idle where there are none.
//
// A block that sums over keys has five warps and 80 queries: the queries of a chunk of 64 tokens and its landmark are
// one tile.
#pragma once

#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/grouped/grouped_tiles.h"

namespace quire::cuda {

using GroupedInBf16 = GroupedOperands<bfloat16, bfloat16>;

inline constexpr int kListWarps = 5;
inline constexpr int kListThreads = kListWarps * kWarp;
inline constexpr int kListTile = kListWarps * kMmaRows;

// Copies the lines of a tile's queries, with zeros behind the last query.
template <int kThreadsOfBlock, int kLines, int kWidth>
__device__ inline void copy_tile(const SharedLines<kWidth>& to, const bfloat16* tensor, int size,
                                 const GroupedInBf16& in, const ListTile& at, int head) {
  copy_lines<kLines, kThreadsOfBlock>(
      to, size, tensor, [&](int a) { return a < at.count ? in.line_of_query(tensor, size, at, head, a) : nullptr; });
}

// Copies features [first, first + size) of the keys or values [begin, begin + 64) of a chunk, with zeros behind its
// end.
template <int kThreadsOfBlock, int kWidth>
__device__ inline void copy_chunk(const SharedLines<kWidth>& to, const bfloat16* tensor, int width, int first, int size,
                                  const GroupedInBf16& in, int chunk, int kv_head, int begin) {
  copy_lines<kMmaTile, kThreadsOfBlock>(to, size, tensor, [&](int j) {
    return begin + j < in.length ? in.line_of_key(tensor, width, chunk, kv_head, begin + j) + first : nullptr;
  });
}

// Returns the first entry of a list, from n on, that names a chunk.
__device__ inline int next_entry(const GroupedInBf16& in, const ListTile& at, int n) {
  while (n < in.top_k && in.chunk_of(in.entry_of(at, n)) < 0) ++n;
  return n;
}

// Returns the log of a sum in powers of 2. When all logits are -inf it is 0, which makes their exponentials zero.
__device__ inline float exponent_of(float log_sum) {
  return log_sum == -std::numeric_limits<float>::infinity() ? 0.0F : log_sum * kLog2E;
}

// Says whether tensor cores take the call: bf16, lines of whole chunks of 8 features at multiples of 16 bytes, and keys
// (in the backward pass values, too) of at most 128 features. Other calls go to the other kernels.
bool suits_tensor_cores(const Tensor& out, const ops::GroupedCrossAttentionInputs& in, const GroupedSizes& sizes);
bool backward_suits_tensor_cores(const ops::GroupedCrossAttentionGradients& gradients, const Tensor& dout,
                                 const ops::GroupedCrossAttentionInputs& in, const GroupedSizes& sizes);
void grouped_on_tensor_cores(const Tensor& out, const Tensor& lse, const GroupedInBf16& in);
// Computes dq unless it is undefined, and delta.
void query_gradient_on_tensor_cores(const Tensor& dq, const GroupedInBf16& in, const GroupedBackward<bfloat16>& back);
void key_gradient_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, const GroupedInBf16& in,
                                  const GroupedBackward<bfloat16>& back);

}  // namespace quire::cuda
