// Functions that the kernels of attention in bf16 on tensor cores share beside mma_tiles.h. A tile pairs queries with
// keys or distances. Logits, probabilities and sums are f32, and probabilities and gradients of logits round to bf16
// before they are multiplied by values, keys or queries. q + u rounds to bf16 as well.
//
// A term of Transformer-XL belongs to a distance: a warp multiplies its 16 queries by the 79 distances that they have
// to 64 keys, and the sums, through shared memory, move to the column of their key.
#pragma once

#include "kernels/cuda/attention/attention_gradients.h"
#include "kernels/cuda/mma_tiles.h"

namespace quire::cuda {

// A strip holds the terms of 16 queries for the distances to 64 keys. The stride is that of its lines in shared memory.
inline constexpr int kStrip = kMmaTile + kMmaRows;
inline constexpr int kStripStride = kStrip + 4;

__device__ inline TileLines keys_of(const AttentionOperands<bfloat16>& in, const Place& at, const bfloat16* segment,
                                    const bfloat16* ring, int size) {
  return {
      line_of_key(segment, ring, size, in, at, 0),
      ring == nullptr ? nullptr : ring + (static_cast<int64_t>(at.row) * in.slots * in.kv_heads + at.kv_head) * size,
      in.kv_heads * size,
      size,
      at.ring_head,
      in.slots};
}
__device__ inline TileLines queries_of(const AttentionOperands<bfloat16>& in, const Place& at, const bfloat16* tensor,
                                       int size) {
  return {line_of_query(tensor, size, in, at, 0), nullptr, in.heads * size, size, 0, 0};
}
// Returns the lines of r for a head; position n is distance N - 1 - n.
__device__ inline TileLines terms_of(const AttentionOperands<bfloat16>& in, const Place& at) {
  return {in.r + static_cast<int64_t>(at.head) * in.size, nullptr, in.heads * in.size, in.size, 0, 0};
}

// Loads the queries of a tile; with Transformer-XL terms it loads q + u and q + v_bias instead.
template <int kLines, int kWidth>
__device__ inline void load_queries(const SharedLines<kWidth>& content, const SharedLines<kWidth>& position,
                                    const AttentionOperands<bfloat16>& in, const Place& at, int first_query) {
  constexpr int kChunks = SharedLines<kWidth>::kChunks;
  constexpr int kChunk = SharedLines<kWidth>::kChunk;
  if (in.r == nullptr) {
    return copy_tile_lines<kLines>(content, queries_of(in, at, in.q, in.size), first_query, 0, in.queries);
  }
  const float* const u = in.u == nullptr ? nullptr : in.u + static_cast<int64_t>(at.head) * in.size;
  const float* const v_bias = in.v_bias == nullptr ? nullptr : in.v_bias + static_cast<int64_t>(at.head) * in.size;
  for (int item = static_cast<int>(threadIdx.x); item < kLines * kChunks; item += kMmaThreads) {
    const int line = item / kChunks;
    const int first = item % kChunks * kChunk;
    const bool there = first_query + line < in.queries && first < in.size;
    Words given{};
    if (there) {
      given = *reinterpret_cast<const Words*>(line_of_query(in.q, in.size, in, at, first_query + line) + first);
    }
    *reinterpret_cast<Words*>(content.chunk(line, first / kChunk)) =
        u != nullptr && there ? with_added(given, u + first) : given;
    *reinterpret_cast<Words*>(position.chunk(line, first / kChunk)) =
        v_bias != nullptr && there ? with_added(given, v_bias + first) : given;
  }
}

// Copies the keys of a tile. Positions outside [low, high) become zero.
template <int kLines, int kWidth>
__device__ inline void copy_keys(const SharedLines<kWidth>& to, const AttentionOperands<bfloat16>& in, const Place& at,
                                 const VisibleRange& range, int first_key) {
  copy_tile_lines<kLines>(to, keys_of(in, at, in.k, in.cache_k, in.size), first_key, range.low, range.high);
}
template <int kLines, int kWidth>
__device__ inline void copy_values(const SharedLines<kWidth>& to, const AttentionOperands<bfloat16>& in,
                                   const Place& at, const VisibleRange& range, int first_key) {
  copy_tile_lines<kLines>(to, keys_of(in, at, in.v, in.cache_v, in.value_size), first_key, range.low, range.high);
}
// Copies lines of r, for kLines distances from first_distance on.
template <int kLines, int kWidth>
__device__ inline void copy_terms(const SharedLines<kWidth>& to, int first_line, const AttentionOperands<bfloat16>& in,
                                  const Place& at, int first_distance) {
  copy_tile_lines<kLines>(SharedLines<kWidth>{to.begin + first_line * kWidth}, terms_of(in, at),
                          in.entries - 1 - first_distance, 0, in.entries, Backwards{});
}

// Multiplies 16 queries, lines first_x.. of x, by kStrip lines of y and writes the products to strip[query][line]. y
// has 128 lines and wraps around: its first line follows its last.
template <int kWidth>
__device__ inline void multiply_strip(float* strip, const SharedLines<kWidth>& x, int first_x,
                                      const SharedLines<kWidth>& y, int first_y, int size) {
  constexpr int kColumns = kStrip / kMmaColumns;
  SumFragment sums[kColumns] = {};
#pragma unroll 1
  for (int f = 0; f < kWidth; f += kMmaDepth) {
    if (f >= size) break;
    const LeftFragment left = x.left(first_x, f);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      RightFragment right[2];
      y.right(right, (first_y + n * kMmaColumns) % (2 * kMmaTile), f);
      multiply_add(sums[n], left, right[0]);
      multiply_add(sums[n + 1], left, right[1]);
    }
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const to = strip + row_of_sum(2 * half) * kStripStride + n * kMmaColumns + column_of_sum(0);
      *reinterpret_cast<TwoSums*>(to) = {{sums[n].x[2 * half], sums[n].x[2 * half + 1]}};
    }
  }
}

// Fills the dropout mask of 16 queries of a warp and a tile of 64 pairs each: mask[a][g], as in fill_mask, with a
// counted from the first query of the tile.
template <bool kByDistance>
__device__ inline void fill_mask_of_warp(MaskGroup* mask, const AttentionOperands<bfloat16>& in, const Place& at,
                                         int first_query, int origin, int first_line) {
  for (int item = lane_of_warp(); item < kMmaRows * kMaskGroups; item += kWarp) {
    const int a = first_line + item / kMaskGroups;
    mask[a * kMaskGroups + item % kMaskGroups] =
        mask_group<kByDistance>(in, at, first_query, origin, a, item % kMaskGroups);
  }
}

// Says whether these kernels take the operands: lines in whole chunks of 8 features at multiples of 16 bytes, keys and
// values of at most 128 features, and a device with enough shared memory. values_like is out, or dout.
inline constexpr int kMmaWidest = 128;
bool suits_tensor_cores(const Tensor& values_like, const ops::AttentionInputs& in, const AttentionSizes& sizes);
void attention_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                               const AttentionSizes& sizes);

// Returns the first tile of queries that may see keys from `first_key` on; sees_keys says whether a tile that sees
// `range` does.
__device__ inline int first_tile_of(const AttentionOperands<bfloat16>& in, int first_key) {
  return in.last_visible == nullptr && first_key > 0 ? first_key / kMmaTile : 0;
}
__device__ inline bool sees_keys(const VisibleRange& range, int first_key, int keys) {
  return range.low < first_key + keys && range.high > first_key;
}

bool backward_suits_tensor_cores(const ops::AttentionGradients& gradients, const Tensor& dout,
                                 const ops::AttentionInputs& in, const AttentionSizes& sizes);
void query_gradient_on_tensor_cores(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                    const BackwardOperands<bfloat16>& back);
void key_gradient_on_tensor_cores(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back);
void distance_gradient_on_tensor_cores(float* r_parts, float* sum_parts, int64_t groups,
                                       const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back);

}  // namespace quire::cuda
