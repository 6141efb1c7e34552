// How a warp reads stored blocks for a query and head: the operands of a call, the query turned for a block, products
// with 32 keys or values at once, and the softmax within a block.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/block_attention.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

template <typename T, typename S>
struct StoredOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const int32_t *slot, *turn;
  const A* table;
  int64_t lines, slots, entries;
  int queries, heads, kv_heads, size, value_size, chosen, length, pairs;
  A scale;
  bool landmarks, interleaved;

  StoredOperands(const ops::StoredAttentionInputs& in, const StoredSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<S>()),
        values(in.values.data<S>()),
        slot(in.slot.data<int32_t>()),
        turn(in.turn.defined() ? in.turn.data<int32_t>() : nullptr),
        table(in.table.defined() ? in.table.data<A>() : nullptr),
        lines(s.rows * s.queries * s.heads),
        slots(in.keys.dim(0)),
        entries(in.table.defined() ? in.table.dim(0) : 0),
        queries(static_cast<int>(s.queries)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        size(static_cast<int>(s.size)),
        value_size(static_cast<int>(s.value_size)),
        chosen(static_cast<int>(s.chosen)),
        length(static_cast<int>(s.length)),
        pairs(in.table.defined() ? static_cast<int>(in.table.dim(2)) : 0),
        scale(static_cast<A>(in.scale)),
        landmarks(in.landmarks),
        interleaved(in.interleaved) {}

  // Of a line of [R, T, H]: its place in [R, H, T].
  __device__ int64_t lse_of(int64_t line) const {
    return (line / heads / queries * heads + line % heads) * queries + line / heads % queries;
  }
  // The n-th block of a line; -1: none, and also a slot that is not there, since the host does not see slots.
  __device__ int64_t block_of(int64_t line, int n) const {
    const int64_t block = slot[line * chosen + n];
    return block < slots ? block : -1;
  }
  // The cosines of a block's turn, sines behind them; null without a table.
  __device__ const A* angles_of(int64_t line, int n) const {
    if (table == nullptr) return nullptr;
    int64_t back = turn[line * chosen + n];
    back = back < 0 ? 0 : (back < entries ? back : entries - 1);
    return table + back * 2 * pairs;
  }
  __device__ int64_t first_vector(int64_t line, int64_t block) const {
    return block * length * kv_heads + line % heads / (heads / kv_heads);
  }
  __device__ int64_t key_stride() const { return int64_t{kv_heads} * size; }
  __device__ int64_t value_stride() const { return int64_t{kv_heads} * value_size; }
  __device__ const S* key(int64_t first, int j) const { return keys + first * size + j * key_stride(); }
  __device__ const S* value(int64_t first, int j) const { return values + first * value_size + j * value_stride(); }
  __device__ int regular() const { return length - (landmarks ? 1 : 0); }
};

template <typename A, typename S>
__device__ inline A number(S value) {
  if constexpr (std::is_same_v<S, bfloat16>) {
    return static_cast<float>(value);
  } else {
    return static_cast<A>(value);
  }
}

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

// The product of two vectors, for all lanes.
template <typename A, typename X, typename Y>
__device__ inline A dot(const X* x, const Y* y, int size) {
  A sum = 0;
  for (int d = lane_of_warp(); d < size; d += kWarp) sum += number<A>(x[d]) * number<A>(y[d]);
  return warp_sum(sum);
}

// y = x turned by angles, or turned back; pairs of features as in RotaryInputs. Both are in shared memory, and all
// lanes are through with y. Ends with a barrier of the warp.
template <typename A>
__device__ inline void turn_vector(A* y, const A* x, const A* angles, int pairs, int size, bool back,
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

// Vectors and weights of a warp.
template <typename A>
struct WarpVectors {
  A* next;

  // Of `numbers` in all: the warp's share of shared memory.
  __device__ explicit WarpVectors(int numbers) : next(dynamic_shared<A>() + threadIdx.x / kWarp * numbers) {}
  __device__ A* take(int count) {
    A* const taken = next;
    next += count;
    return taken;
  }
};

// The scaled query of a line.
template <typename T, typename S>
__device__ inline void load_query(Wide<T>* to, const StoredOperands<T, S>& in, int64_t line) {
  for (int d = lane_of_warp(); d < in.size; d += kWarp) to[d] = wide(in.q[line * in.size + d]) * in.scale;
  __syncwarp();
}

// Lane j gets the sum of its sums[j] over the lanes, for j < 2 kHalf: one exchange for each two sums, until one is
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

// Lane j gets the product of x and the j-th of `count` vectors, `stride` apart. All lanes read a vector together.
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

// An online softmax within a block; alike in all lanes.
template <typename A>
struct OnlineSoftmax {
  A top = std::numeric_limits<A>::lowest();  // finite: differences are no NaN
  A sum = 0;

  // A lane's logit, -inf for none, to its weight; returns what multiplies earlier sums.
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

}  // namespace quire::cuda
