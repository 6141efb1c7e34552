// Attention in bf16 on tensor cores: what its kernels share. A block of four warps has a tile of pairs of queries and
// keys (or distances); a warp has 16 lines of it, or twice 16. Operands of products pass through shared memory in bf16;
// logits, probabilities and sums are f32, and probabilities and gradients of logits round to bf16 before they are
// multiplied by values, keys or queries. q + u rounds to bf16 as well.
//
// A term of Transformer-XL belongs to a distance: a warp multiplies its 16 queries by the 79 distances that they have
// to 64 keys, and the sums, through shared memory, move to the column of their key.
#pragma once

#include "kernels/cuda/attention_gradients.h"
#include "kernels/cuda/mma.h"

namespace quire::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kMmaTile = kMmaWarps * kMmaRows;  // 64 keys, and queries in the backward pass
// Distances of 16 queries to 64 keys, and what lies between lines of their sums and of bf16 values in shared memory.
inline constexpr int kStrip = kMmaTile + kMmaRows;
inline constexpr int kStripStride = kStrip + 4;
// Exponentials and logarithms are those of 2.
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

__device__ inline int warp_of_block() {
  return static_cast<int>(threadIdx.x) / kWarp;
}
__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
// Where a lane's four sums of a 16 x 8 matrix stand.
__device__ inline int row_of_sum(int i) {
  return lane_of_warp() / 4 + i / 2 * 8;
}
__device__ inline int column_of_sum(int i) {
  return lane_of_warp() % 4 * 2 + i % 2;
}

// Over the four lanes that share a row of sums.
__device__ inline float largest_of_row(float value) {
  for (int bits = 2; bits > 0; bits /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, bits);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline float sum_of_row(float value) {
  for (int bits = 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// Rows `half` of a lane's logits, in powers of 2, go on with the softmax of the tiles before: they become exponentials,
// what was summed so far is rescaled. `sum` is the lane's own part.
template <int kColumns, int kFeatures>
__device__ inline void go_on(float& top, float& sum, SumFragment (&logits)[kColumns], SumFragment (&totals)[kFeatures],
                             int half) {
  float largest = top;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) largest = logits[n].x[i] > largest ? logits[n].x[i] : largest;
  }
  largest = largest_of_row(largest);
  const float correction = exp2f(top - largest);
  top = largest;
  sum *= correction;
#pragma unroll
  for (int n = 0; n < kFeatures; ++n) {
    totals[n].x[2 * half] *= correction;
    totals[n].x[2 * half + 1] *= correction;
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      logits[n].x[i] = exp2f(logits[n].x[i] - largest);
      sum += logits[n].x[i];
    }
  }
}

// Two neighbouring features of rows `half`, times a factor.
__device__ inline void store_features(bfloat16* to, const SumFragment& sums, int half, float factor) {
  *reinterpret_cast<uint32_t*>(to) = packed(sums.x[2 * half] * factor, sums.x[2 * half + 1] * factor);
}

// Copies lines of `size` values into a tile: line_of(n) points to line n, null for zeros. Features behind `size` are
// zeros, too. `any` may be read.
template <int kThreadsOfBlock = kMmaThreads, int kWidth, typename LineOf>
__device__ inline void copy_lines(const SharedLines<kWidth>& to, int first_line, int lines, int size,
                                  const bfloat16* any, LineOf line_of) {
  constexpr int kChunks = SharedLines<kWidth>::kChunks;
  constexpr int kChunk = SharedLines<kWidth>::kChunk;
  for (int item = static_cast<int>(threadIdx.x); item < lines * kChunks; item += kThreadsOfBlock) {
    const int line = item / kChunks;
    const int chunk = item % kChunks;
    const bfloat16* const from = line_of(line);
    const bool there = from != nullptr && chunk * kChunk < size;
    copy_later(to.chunk(first_line + line, chunk), there ? from + chunk * kChunk : any, there);
  }
}

// The queries of a tile, and with Transformer-XL terms q + u and q + v_bias in their place.
template <int kWidth>
__device__ inline void load_queries(const SharedLines<kWidth>& content, const SharedLines<kWidth>& position, int lines,
                                    const AttentionOperands<bfloat16>& in, const Place& at, int first_query) {
  constexpr int kChunks = SharedLines<kWidth>::kChunks;
  constexpr int kChunk = SharedLines<kWidth>::kChunk;
  if (in.r == nullptr) {
    copy_lines(content, 0, lines, in.size, in.q, [&](int a) {
      const int query = first_query + a;
      return query < in.queries ? line_of_query(in.q, in.size, in, at, query) : nullptr;
    });
    return;
  }
  const float* const u = in.u == nullptr ? nullptr : in.u + static_cast<int64_t>(at.head) * in.size;
  const float* const v_bias = in.v_bias == nullptr ? nullptr : in.v_bias + static_cast<int64_t>(at.head) * in.size;
  for (int item = static_cast<int>(threadIdx.x); item < lines * kChunks; item += kMmaThreads) {
    const int line = item / kChunks;
    const int first = item % kChunks * kChunk;
    const bool there = first_query + line < in.queries && first < in.size;
    Words given{};
    if (there) {
      given = *reinterpret_cast<const Words*>(line_of_query(in.q, in.size, in, at, first_query + line) + first);
    }
    Words with_u;
    Words with_v;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const float low = lower_half(given.x[n]);
      const float high = upper_half(given.x[n]);
      const int f = first + 2 * n;
      with_u.x[n] = u != nullptr && there ? packed(low + u[f], high + u[f + 1]) : given.x[n];
      with_v.x[n] = v_bias != nullptr && there ? packed(low + v_bias[f], high + v_bias[f + 1]) : given.x[n];
    }
    *reinterpret_cast<Words*>(content.chunk(line, first / kChunk)) = with_u;
    *reinterpret_cast<Words*>(position.chunk(line, first / kChunk)) = with_v;
  }
}

// Keys or values of positions outside [low, high) count as zero.
template <int kWidth>
__device__ inline void copy_keys(const SharedLines<kWidth>& to, int lines, const AttentionOperands<bfloat16>& in,
                                 const Place& at, const VisibleRange& range, int first_key) {
  copy_lines(to, 0, lines, in.size, in.q, [&](int c) {
    const int position = first_key + c;
    const bool seen = position >= range.low && position < range.high;
    return seen ? line_of_key(in.k, in.cache_k, in.size, in, at, position) : nullptr;
  });
}
template <int kWidth>
__device__ inline void copy_values(const SharedLines<kWidth>& to, int lines, const AttentionOperands<bfloat16>& in,
                                   const Place& at, const VisibleRange& range, int first_key) {
  copy_lines(to, 0, lines, in.value_size, in.q, [&](int c) {
    const int position = first_key + c;
    const bool seen = position >= range.low && position < range.high;
    return seen ? line_of_key(in.v, in.cache_v, in.value_size, in, at, position) : nullptr;
  });
}
// Lines of r.
template <int kWidth>
__device__ inline void copy_terms(const SharedLines<kWidth>& to, int first_line, int lines,
                                  const AttentionOperands<bfloat16>& in, const Place& at, int first_distance) {
  copy_lines(to, first_line, lines, in.size, in.q, [&](int n) {
    const int distance = first_distance + n;
    return distance >= 0 && distance < in.entries ? line_of_distance(in.r, in, at, distance) : nullptr;
  });
}

// sums[t][n] += 16 lines of x, from first_x + 64 t on, times 8 lines of y, from first_y + 8 n on, over `size` features.
template <int kWidth, int kTiles, int kColumns>
__device__ inline void multiply_lines(SumFragment (&sums)[kTiles][kColumns], const SharedLines<kWidth>& x, int first_x,
                                      const SharedLines<kWidth>& y, int first_y, int size) {
  static_assert(kColumns % 2 == 0);
  // Operands that are loaded ahead take registers.
  [[maybe_unused]] constexpr int kAhead = kWidth > 64 ? 2 : 4;
#pragma unroll kAhead
  for (int f = 0; f < kWidth; f += kMmaDepth) {
    if (f >= size) break;
    LeftFragment left[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) left[t] = x.left(first_x + t * kMmaTile, f);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      RightFragment right[2];
      y.right(right, first_y + n * kMmaColumns, f);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_add(sums[t][n], left[t], right[0]);
        multiply_add(sums[t][n + 1], left[t], right[1]);
      }
    }
  }
}

// Sums of 16 lines and 16 columns, from column 16 step on, as the left operand of a product over the columns.
template <int kColumns>
__device__ inline LeftFragment as_weights(const SumFragment (&sums)[kColumns], int step) {
  const SumFragment& low = sums[2 * step];
  const SumFragment& high = sums[2 * step + 1];
  return {{packed(low.x[0], low.x[1]), packed(low.x[2], low.x[3]), packed(high.x[0], high.x[1]),
           packed(high.x[2], high.x[3])}};
}

// totals[t][n] += weights[t], 16 lines of as many columns as y has lines from first_y on, times columns 8 n.. of y, up
// to `size`.
template <int kWidth, int kTiles, int kColumns>
__device__ inline void multiply_weights(SumFragment (&totals)[kTiles][kWidth / kMmaColumns],
                                        const SumFragment (&weights)[kTiles][kColumns], const SharedLines<kWidth>& y,
                                        int first_y, int size) {
#pragma unroll
  for (int step = 0; step < kColumns / 2; ++step) {
    LeftFragment left[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) left[t] = as_weights(weights[t], step);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; n += 2) {
      if (n * kMmaColumns >= size) break;
      RightFragment right[2];
      y.right_turned(right, first_y + step * kMmaDepth, n * kMmaColumns);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_add(totals[t][n], left[t], right[0]);
        multiply_add(totals[t][n + 1], left[t], right[1]);
      }
    }
  }
}

// Lines first_line + 0..15 of 64 columns get sums in bf16.
template <int kColumns>
__device__ inline void store_weights(const SharedLines<kMmaTile>& to, int first_line,
                                     const SumFragment (&weights)[kColumns]) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t* const pair =
          reinterpret_cast<uint32_t*>(&to.at(first_line + row_of_sum(2 * half), n * kMmaColumns + column_of_sum(0)));
      *pair = packed(weights[n].x[2 * half], weights[n].x[2 * half + 1]);
    }
  }
}

// totals[n] += columns first.. + 15 of 64 lines of weights, turned, times columns 8 n.. of as many lines of y, up to
// `size`.
template <int kWidth>
__device__ inline void multiply_turned(SumFragment (&totals)[kWidth / kMmaColumns],
                                       const SharedLines<kMmaTile>& weights, int first, const SharedLines<kWidth>& y,
                                       int size) {
#pragma unroll
  for (int step = 0; step < kMmaTile / kMmaDepth; ++step) {
    const LeftFragment left = weights.left_turned(step * kMmaDepth, first);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; n += 2) {
      if (n * kMmaColumns >= size) break;
      RightFragment right[2];
      y.right_turned(right, step * kMmaDepth, n * kMmaColumns);
      multiply_add(totals[n], left, right[0]);
      multiply_add(totals[n + 1], left, right[1]);
    }
  }
}

// The products of 16 queries, lines first_x.. of x, with kStrip lines of y go to strip[query][line]. y has 128 lines,
// the first of which follows the last.
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

// What dropout needs for 16 queries of a warp and a tile of 64 pairs each: mask[a][g], as in fill_mask, a counted from
// the first query of the tile.
template <bool kByDistance>
__device__ inline void fill_mask_of_warp(uint32_t* mask, const AttentionOperands<bfloat16>& in, const Place& at,
                                         int first_query, int origin, int first_line) {
  for (int item = lane_of_warp(); item < kMmaRows * kMaskGroups; item += kWarp) {
    const int a = first_line + item / kMaskGroups;
    mask[a * kMaskGroups + item % kMaskGroups] =
        mask_word<kByDistance>(in, at, first_query, origin, a, item % kMaskGroups);
  }
}

// Operands that these kernels take: whole chunks of 8 features at multiples of 16 bytes, heads of 128 features at most.
inline constexpr int kMmaWidest = 128;
bool suits_tensor_cores(const ops::AttentionInputs& in, const AttentionSizes& sizes);
void attention_on_tensor_cores(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                               const AttentionSizes& sizes);
// And in the backward pass, where values have 128 features at most.
bool backward_suits_tensor_cores(const ops::AttentionInputs& in, const AttentionSizes& sizes);
void query_gradient_on_tensor_cores(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                    const BackwardOperands<bfloat16>& back);
void key_gradient_on_tensor_cores(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back);
void distance_gradient_on_tensor_cores(float* r_parts, float* sum_parts, int64_t groups,
                                       const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back);

}  // namespace quire::cuda
