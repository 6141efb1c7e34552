// Tiles of pairs in bf16 on tensor cores, for attention and searches of all kinds. A block of four warps has a tile of
// lines and columns; a warp has 16 lines of it, or twice 16. Operands of products pass through shared memory in bf16;
// sums are f32.
#pragma once

#include "kernels/cuda/mma.h"
#include "kernels/cuda/tiles.h"

namespace quire::cuda {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = kMmaWarps * kWarp;
inline constexpr int kMmaTile = kMmaWarps * kMmaRows;  // 64 keys, and queries in the backward pass
// Exponentials and logarithms are to base 2.
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;
// Returns 2^exponent by one instruction, with a relative error of at most 2^-22; results below 2^-126 are zero.
__device__ inline float power_of_two(float exponent) {
#ifdef __CUDACC__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
  return power;
#else
  return exp2f(exponent);
#endif
}

__device__ inline int warp_of_block() {
  return static_cast<int>(threadIdx.x) / kWarp;
}
// Return the row and column of a lane's sum i of a 16 x 8 matrix.
__device__ inline int row_of_sum(int i) {
  return lane_of_warp() / 4 + i / 2 * 8;
}
__device__ inline int column_of_sum(int i) {
  return lane_of_warp() % 4 * 2 + i % 2;
}

// Returns the largest value of the four lanes that share a row of sums.
__device__ inline float largest_of_row(float value) {
  for (int bits = 2; bits > 0; bits /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, bits));
  return value;
}
__device__ inline float sum_of_row(float value) {
  for (int bits = 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// Adds rows `half` of a lane's logits, in powers of 2, to the softmax of the tiles before: they become exponentials.
// Returns the factor for the sums so far; `sum` is the lane's own part of them.
template <int kColumns>
__device__ inline float go_on(float& top, float& sum, SumFragment (&logits)[kColumns], int half) {
  float largest = top;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) largest = fmaxf(largest, logits[n].x[i]);
  }
  largest = largest_of_row(largest);
  const float correction = power_of_two(top - largest);
  top = largest;
  sum *= correction;
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      logits[n].x[i] = power_of_two(logits[n].x[i] - largest);
      sum += logits[n].x[i];
    }
  }
  return correction;
}
// Does the same, and multiplies the sums of values by that factor.
template <int kColumns, int kFeatures>
__device__ inline void go_on(float& top, float& sum, SumFragment (&logits)[kColumns], SumFragment (&totals)[kFeatures],
                             int half) {
  const float correction = go_on(top, sum, logits, half);
#pragma unroll
  for (int n = 0; n < kFeatures; ++n) {
    totals[n].x[2 * half] *= correction;
    totals[n].x[2 * half + 1] *= correction;
  }
}

// Sets logits or probabilities of rows `half` whose distance is not seen to `instead`. `distance` is that of column 0.
template <int kColumns>
__device__ inline void hide_unseen(SumFragment (&pairs)[kColumns], int half, int distance, int nearest, int farthest,
                                   float instead) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const int of_pair = distance - n * kMmaColumns - column_of_sum(i);
      const bool seen = of_pair >= nearest && of_pair <= farthest;
      if (!seen) pairs[n].x[i] = instead;
    }
  }
}

// Stores two neighbouring features of rows `half`, times a factor.
__device__ inline void store_features(bfloat16* to, const SumFragment& sums, int half, float factor) {
  *reinterpret_cast<uint32_t*>(to) = packed(sums.x[2 * half] * factor, sums.x[2 * half + 1] * factor);
}

// Describes where the lines of tiles are copied from; they lie `stride` values apart. Positions from 0 on lie in a
// segment, earlier ones in a ring.
struct TileLines {
  const bfloat16* segment;  // position 0
  const bfloat16* ring;     // slot 0; not read where no position is below 0
  int stride;
  int size;  // values of a line that are there
  int ring_head, slots;

  // Returns the line at a position, without branches.
  __device__ const bfloat16* at(int position) const {
    const int slot = ring_head + position;
    const int in_ring = slot < 0 ? slot + slots : slot;
    return (position >= 0 ? segment : ring) + static_cast<int64_t>(position >= 0 ? position : in_ring) * stride;
  }
};

struct InOrder {
  __device__ int operator()(int line) const { return line; }
};
struct Backwards {
  __device__ int operator()(int line) const { return -line; }
};

// Copies lines first + order(0).. to a tile of kLines lines, 16 bytes at once; a thread always copies the same part of
// a line. Lines at positions outside [low, high) and features behind the end of a line become zeros. Position 0 must be
// readable.
template <int kLines, int kThreadsOfBlock = kMmaThreads, typename Lines, typename Order = InOrder>
__device__ inline void copy_tile_lines(const Lines& to, const TileLines& from, int first, int low, int high,
                                       Order order = {}) {
  constexpr int kAtOnce = kThreadsOfBlock / Lines::kChunks;
  static_assert(kLines % kAtOnce == 0);
  const int number = static_cast<int>(threadIdx.x) % Lines::kChunks;
  const int feature = number * Lines::kChunk;
  const bool inside = feature < from.size;
#pragma unroll 4
  for (int n = 0; n < kLines / kAtOnce; ++n) {
    const int line = static_cast<int>(threadIdx.x) / Lines::kChunks + n * kAtOnce;
    const int position = first + order(line);
    const bool there = inside && position >= low && position < high;
    copy_later(to.chunk(line, number), from.at(there ? position : 0) + (inside ? feature : 0), there);
  }
}

// Copies the lines that line_of(n) points to; null gives zeros. `any` must be readable.
template <int kLines, int kThreadsOfBlock = kMmaThreads, int kWidth, typename LineOf>
__device__ inline void copy_lines(const SharedLines<kWidth>& to, int size, const bfloat16* any, LineOf line_of) {
  constexpr int kChunks = SharedLines<kWidth>::kChunks;
  constexpr int kAtOnce = kThreadsOfBlock / kChunks;
  static_assert(kThreadsOfBlock % kChunks == 0);
  const int number = static_cast<int>(threadIdx.x) % kChunks;
  const int feature = number * SharedLines<kWidth>::kChunk;
  // A block of five warps has fewer registers for addresses.
  [[maybe_unused]] constexpr int kUnrolled = kThreadsOfBlock > kMmaThreads ? 2 : 4;
#pragma unroll kUnrolled
  for (int n = 0; n < ceil_div(kLines, kAtOnce); ++n) {
    const int line = static_cast<int>(threadIdx.x) / kChunks + n * kAtOnce;
    if (kLines % kAtOnce != 0 && line >= kLines) break;
    const bfloat16* const from = line_of(line);
    const bool there = from != nullptr && feature < size;
    copy_later(to.chunk(line, number), there ? from + feature : any, there);
  }
}

// Returns given + added, rounded to bf16.
__device__ inline Words with_added(const Words& given, const float* added) {
  Words to;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    to.x[n] = packed(lower_half(given.x[n]) + added[2 * n], upper_half(given.x[n]) + added[2 * n + 1]);
  }
  return to;
}

// Computes sums[t][n] += 16 lines of x, from first_x + kApart t on, times 8 lines of y, from first_y + 8 n on, over
// `size` features.
template <int kApart = kMmaTile, int kWidth, int kTiles, int kColumns>
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
    for (int t = 0; t < kTiles; ++t) left[t] = x.left(first_x + t * kApart, f);
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

// Returns the sums of 16 lines and 16 columns, from column 16 step on, as the left operand of a product over the
// columns.
template <int kColumns>
__device__ inline LeftFragment as_weights(const SumFragment (&sums)[kColumns], int step) {
  const SumFragment& low = sums[2 * step];
  const SumFragment& high = sums[2 * step + 1];
  return {{packed(low.x[0], low.x[1]), packed(low.x[2], low.x[3]), packed(high.x[0], high.x[1]),
           packed(high.x[2], high.x[3])}};
}

// Computes totals[t][n] += weights[t] times columns 8 n.. of y, up to `size`. weights[t] has 16 lines and as many
// columns as y has lines from first_y on.
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
      y.right_transposed(right, first_y + step * kMmaDepth, n * kMmaColumns);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_add(totals[t][n], left[t], right[0]);
        multiply_add(totals[t][n + 1], left[t], right[1]);
      }
    }
  }
}

// Computes totals[t][n] += weights in shared memory, lines first_line + 16 t.., times columns first + 8 n.. of y, up to
// `size`. The weights are those of a whole tile, so a warp may take a part of the features for all lines instead of all
// features for a part of the lines.
template <int kSummed, int kWidth, int kTiles, int kColumns>
__device__ inline void multiply_shared(SumFragment (&totals)[kTiles][kColumns], const SharedLines<kSummed>& weights,
                                       int first_line, const SharedLines<kWidth>& y, int first, int size) {
  static_assert(kColumns % 2 == 0);
#pragma unroll 2
  for (int step = 0; step < kSummed; step += kMmaDepth) {
    LeftFragment left[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) left[t] = weights.left(first_line + t * kMmaRows, step);
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      if (first + n * kMmaColumns >= size) break;
      RightFragment right[2];
      y.right_transposed(right, step, first + n * kMmaColumns);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_add(totals[t][n], left[t], right[0]);
        multiply_add(totals[t][n + 1], left[t], right[1]);
      }
    }
  }
}
// Stores two neighbouring weights of a lane's sums in shared memory.
template <int kSummed, int kColumns>
__device__ inline void store_weights(const SharedLines<kSummed>& to, int first_line, int first,
                                     const SumFragment (&weights)[kColumns]) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<uint32_t*>(
          &to.at(first_line + row_of_sum(2 * half), first + n * kMmaColumns + column_of_sum(0))) =
          packed(weights[n].x[2 * half], weights[n].x[2 * half + 1]);
    }
  }
}

// Stores sums in bf16 as lines first_line + 0..15 of 64 columns.
template <int kColumns>
__device__ inline void store_weights(const SharedLines<kMmaTile>& to, int first_line,
                                     const SumFragment (&weights)[kColumns]) {
  store_weights(to, first_line, 0, weights);
}

// Computes totals[n] += columns first.. + 15 of 64 lines of weights, transposed, times columns 8 n.. of the same lines
// of y, up to `size`.
template <int kWidth>
__device__ inline void multiply_transposed(SumFragment (&totals)[kWidth / kMmaColumns],
                                           const SharedLines<kMmaTile>& weights, int first,
                                           const SharedLines<kWidth>& y, int size) {
#pragma unroll
  for (int step = 0; step < kMmaTile / kMmaDepth; ++step) {
    const LeftFragment left = weights.left_transposed(step * kMmaDepth, first);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; n += 2) {
      if (n * kMmaColumns >= size) break;
      RightFragment right[2];
      y.right_transposed(right, step * kMmaDepth, n * kMmaColumns);
      multiply_add(totals[n], left, right[0]);
      multiply_add(totals[n + 1], left, right[1]);
    }
  }
}

// Multiplies totals[t], 16 lines each, by a factor of each line.
template <int kTiles, int kColumns>
__device__ inline void scale_lines(SumFragment (&totals)[kTiles][kColumns], const float* factors) {
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float factor = factors[t * kMmaRows + row_of_sum(2 * half)];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        totals[t][n].x[2 * half] *= factor;
        totals[t][n].x[2 * half + 1] *= factor;
      }
    }
  }
}

// Multiplies 64 lines by 128 columns over any number of features, 64 at a time: the next ones are copied to shared
// memory while the current ones are multiplied. A warp has 32 lines and 64 columns.
struct DeepProduct {
  static constexpr int kColumns = 2 * kMmaTile;
  static constexpr int kDeep = 64;
  static constexpr int kTiles = 2;  // tiles of 16 lines of a warp
  static constexpr int kPlace = (kMmaTile + kColumns) * kDeep;
  static constexpr int kValues = 2 * kPlace;
  using Sums = SumFragment[kTiles][kMmaTile / kMmaColumns];

  bfloat16* begin;
  int size;

  // Step n uses place (n + 1) % 2, so that place 0 is free before the first step and behind the last one.
  __device__ SharedLines<kDeep> columns(int step) const { return {begin + (step + 1) % 2 * kPlace}; }
  __device__ SharedLines<kDeep> lines(int step) const { return {columns(step).begin + kColumns * kDeep}; }
  __device__ int features_of(int step) const { return size - step * kDeep < kDeep ? size - step * kDeep : kDeep; }
  static __device__ int first_line() { return warp_of_block() / 2 * kTiles * kMmaRows; }
  static __device__ int first_column() { return warp_of_block() % 2 * kMmaTile; }

  // Adds the products to sums. fetch(step) copies the lines and columns of a step; that of the first step must have
  // been called. Other warps may still read the last step's data when this returns.
  template <typename Fetch>
  __device__ void add(Sums& sums, Fetch&& fetch) const {
    const int steps = ceil_div(size, kDeep);
    for (int step = 0; step < steps; ++step) {
      await_copies();
      __syncthreads();  // these features are there, and nobody reads those of the step before any more
      if (step + 1 < steps) fetch(step + 1);
      multiply_lines<kMmaRows>(sums, lines(step), first_line(), columns(step), first_column(), features_of(step));
    }
  }
};

}  // namespace quire::cuda
