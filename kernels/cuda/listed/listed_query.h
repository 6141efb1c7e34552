// Functions with which a warp reads listed blocks for a query and head: rotating the query for a block, products with
// 32 keys or values at once, and the softmax within a block.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/listed/listed_operands.h"

namespace quire::cuda {

template <typename A, typename S>
__device__ inline A number(S value) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<A>(value);
  }
}

// Returns the product of two vectors to all lanes.
template <typename A, typename X, typename Y>
__device__ inline A dot(const X* x, const Y* y, int size) {
  A sum = 0;
  for (int d = lane_of_warp(); d < size; d += kWarp) sum += number<A>(x[d]) * number<A>(y[d]);
  return warp_sum(sum);
}

// Computes y = x rotated by angles, or rotated back; pairs of features are as in RotaryInputs. Both are in shared
// memory, and no lane may still use y. It ends with a barrier of the warp.
template <typename A>
__device__ inline void rotate_vector(A* y, const A* x, const A* angles, int pairs, int size, bool back,
                                     bool interleaved) {
  if (angles == nullptr) pairs = 0;
  for (int i = lane_of_warp(); i < pairs; i += kWarp) {
    const int at = interleaved ? 2 * i : i;
    const int second = at + (interleaved ? 1 : pairs);
    const A a = x[at];
    const A b = x[second];
    const A sine = back ? -angles[pairs + i] : angles[pairs + i];
    y[at] = a * angles[i] - b * sine;
    y[second] = a * sine + b * angles[i];
  }
  for (int d = 2 * pairs + lane_of_warp(); d < size; d += kWarp) y[d] = x[d];
  __syncwarp();
}

// Hands out vectors from a warp's share of shared memory.
template <typename A>
struct WarpVectors {
  A* next;

  // The warp's share has `numbers` numbers.
  __device__ explicit WarpVectors(int numbers) : next(dynamic_shared<A>() + threadIdx.x / kWarp * numbers) {}
  __device__ A* take(int count) {
    A* const taken = next;
    next += count;
    return taken;
  }
};

// Loads the scaled query of a line.
template <typename T, typename S>
__device__ inline void load_query(Wide<T>* to, const ListedOperands<T, S>& in, int64_t line) {
  for (int d = lane_of_warp(); d < in.size; d += kWarp) to[d] = wide(in.q[line * in.size + d]) * in.scale;
  __syncwarp();
}

// Returns to lane j the sum of sums[j] over the lanes, for j < 2 kHalf. Each exchange combines two sums, until one is
// left.
template <int kHalf, typename A>
__device__ inline A sum_for_each_lane(A (&sums)[kWarp]) {
  const bool upper = (lane_of_warp() & kHalf) != 0;
#pragma unroll
  for (int j = 0; j < kHalf; ++j) {
    const A given = __shfl_xor_sync(kAllLanes, upper ? sums[j] : sums[j + kHalf], kHalf);
    sums[j] = (upper ? sums[j + kHalf] : sums[j]) + given;
  }
  if constexpr (kHalf > 1) {
    return sum_for_each_lane<kHalf / 2>(sums);
  } else {
    return sums[0];
  }
}

// Returns to lane j the product of x and the j-th of `count` vectors, which lie `stride` apart. All lanes read a vector
// together.
template <typename A, typename X, typename S>
__device__ inline A dots(const X* x, const S* vectors, int count, int64_t stride, int size) {
  A sums[kWarp] = {};
  for (int d = lane_of_warp(); d < size; d += kWarp) {
    const A feature = number<A>(x[d]);
    const S* at = vectors + d;
#pragma unroll
    for (int j = 0; j < kWarp; ++j) {
      if (j >= count) continue;
      sums[j] += feature * number<A>(*at);
      at += stride;
    }
  }
  return sum_for_each_lane<kWarp / 2>(sums);
}

// An online softmax within a block, with the same values in all lanes.
template <typename A>
struct OnlineSoftmax {
  A top = std::numeric_limits<A>::lowest();  // finite, so that a difference is never NaN
  A sum = 0;

  // Turns a lane's logit (-inf: none) into its weight, and returns the factor for earlier sums.
  __device__ A take(A& logit) {
    A largest = warp_max(logit);
    largest = largest > top || largest != largest ? largest : top;
    const A correction = std::exp(top - largest);
    logit = std::exp(logit - largest);
    sum = sum * correction + warp_sum(logit);
    top = largest;
    return correction;
  }
};

// Returns the number of warps of a block: as many as fit into shared memory, at most 8.
template <typename A>
inline int warps_for(int64_t numbers) {
  constexpr int64_t kRoom = int64_t{48} << 10;
  const int64_t max_warps = kRoom / (numbers * static_cast<int64_t>(sizeof(A)));
  return static_cast<int>(max_warps < 1 ? 1 : max_warps < 8 ? max_warps : 8);
}

// Calls launch_with(blocks, threads, bytes of shared memory, numbers). Each warp gets `numbers` numbers of shared
// memory.
template <typename A, typename Launch>
void launch_warps(int64_t lines, int64_t numbers, Launch&& launch_with) {
  const int warps = warps_for<A>(numbers);
  launch_with(dim3(static_cast<unsigned>(ceil_div(lines, warps))), warps * kWarp,
              static_cast<size_t>(warps * numbers) * sizeof(A), static_cast<int>(numbers));
}

}  // namespace quire::cuda
