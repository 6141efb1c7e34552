// Code that the kernels of attention to caches of codewords share: the operands of a call, and tiles of its queries.
#pragma once

#include "kernels/cuda/tiles.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

template <typename T>
struct CodeOperands {
  using A = Wide<T>;
  const T* q;
  const T* means;
  const A *u, *codebook, *counts;
  int rows, queries, heads, kv_heads, size, value_size, codes, block, caches;
  int blocks, tiles;        // blocks of queries of a row, tiles of a block
  bool quads, value_quads;  // features of all operands may be read and written as quads
};

template <typename T>
CodeOperands<T> operands_of(const ops::CodeAttentionInputs& in, const CodeAttentionSizes& s) {
  using A = Wide<T>;
  CodeOperands<T> to{};
  to.q = in.q.data<T>();
  to.u = data_or_null<A>(in.u);
  to.codebook = in.codebook.data<A>();
  to.means = in.means.data<T>();
  to.counts = in.counts.data<A>();
  to.rows = static_cast<int>(s.rows);
  to.queries = static_cast<int>(s.queries);
  to.heads = static_cast<int>(s.heads);
  to.kv_heads = static_cast<int>(s.kv_heads);
  to.size = static_cast<int>(s.size);
  to.value_size = static_cast<int>(s.value_size);
  to.codes = static_cast<int>(s.codes);
  to.block = static_cast<int>(s.block < s.queries ? s.block : s.queries);  // a longer one has no more queries
  to.caches = static_cast<int>(s.caches);
  to.blocks = ceil_div(to.queries, to.block);
  to.tiles = ceil_div(to.block, kTile);
  to.quads = in_quads<T>(s.size, {&in.q}) && in_quads<A>(s.size, {&in.codebook});
  to.value_quads = in_quads<T>(s.value_size, {&in.means});
  return to;
}

// A tile has 64 queries of a row, head and block, or fewer.
struct QueryTile {
  int row, head, kv_head, first, end;  // queries [first, end)
  int64_t cache;                       // its first codeword among those of all caches
};

template <typename T>
__device__ inline int64_t cache_of(const CodeOperands<T>& in, int row, int block, int kv_head) {
  return ((static_cast<int64_t>(row) * in.caches + block) * in.kv_heads + kv_head) * in.codes;
}
// Returns the index of a cache's means, which exist for all caches but the last one of each row.
template <typename T>
__device__ inline int64_t means_of(const CodeOperands<T>& in, int row, int64_t cache) {
  return cache - static_cast<int64_t>(row) * in.kv_heads * in.codes;
}
template <typename T>
__device__ inline QueryTile query_tile(const CodeOperands<T>& in, int row, int head, int block, int tile) {
  const int kv_head = head / (in.heads / in.kv_heads);
  const int first = block * in.block + tile * kTile;
  int end = (block + 1) * in.block < in.queries ? (block + 1) * in.block : in.queries;
  if (end > first + kTile) end = first + kTile;
  return {row, head, kv_head, first, end, cache_of(in, row, block, kv_head)};
}
// Returns the tile of a block of threads, given its number.
template <typename T>
__device__ inline QueryTile query_tile(const CodeOperands<T>& in, unsigned index) {
  const int tile = static_cast<int>(index % static_cast<unsigned>(in.tiles));
  const int line = static_cast<int>(index / static_cast<unsigned>(in.tiles));
  return query_tile(in, line / in.blocks / in.heads, line / in.blocks % in.heads, line % in.blocks, tile);
}

template <typename Pointer, typename T>
__device__ inline Pointer line_of(Pointer tensor, int width, const CodeOperands<T>& in, const QueryTile& at, int a) {
  return tensor + ((static_cast<int64_t>(at.row) * in.queries + at.first + a) * in.heads + at.head) * width;
}
template <typename T>
__device__ inline int64_t lse_of(const CodeOperands<T>& in, const QueryTile& at, int a) {
  return (static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + at.first + a;
}

template <typename T>
struct CodeBackwardOperands {
  using A = Wide<T>;
  const T* dout;
  const A* lse;    // [R, H, T]
  const A* delta;  // [R, H, T]: dout . out, the term that the gradient of softmax subtracts
};

// Says whether tensor cores take the call (vq_attention_mma.h): bf16 in whole chunks of 8 features at multiples of 16
// bytes, heads and values of 128 features at most. `others` are the tensors of queries and values beside `in`.
bool codes_suit_tensor_cores(const ops::CodeAttentionInputs& in, const CodeAttentionSizes& sizes,
                             std::initializer_list<const Tensor*> others);
void code_attention_on_tensor_cores(const Tensor& out, const Tensor& lse, const Tensor& before,
                                    const ops::CodeAttentionInputs& in, const CodeAttentionSizes& sizes);
// Computes dq, and dmeans unless it is null. `terms`, unless it is null, gets the amounts that were added to dq.
void code_gradients_on_tensor_cores(bfloat16* dq, float* terms, bfloat16* dmeans,
                                    const CodeBackwardOperands<bfloat16>& back, const ops::CodeAttentionInputs& in,
                                    const CodeAttentionSizes& sizes);

}  // namespace quire::cuda
