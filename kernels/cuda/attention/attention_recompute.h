// Recomputes, for the backward passes, the probabilities of a tile of attention and the gradients of its logits.
#pragma once

#include "kernels/cuda/attention/attention_gradients.h"

namespace quire::cuda {

// Computes p, the probabilities of a tile as they multiplied the values, after dropout, and ds, the gradients of its
// logits.
template <bool kByDistance, typename T>
__device__ inline void recompute(Pairs<Wide<T>>& p, Pairs<Wide<T>>& ds, const TileMemory<Wide<T>>& memory,
                                 const AttentionOperands<T>& in, const BackwardOperands<T>& back, const Place& at,
                                 const VisibleRange& range, int first_query, int origin) {
  using A = Wide<T>;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      p[i][j] = 0;
      ds[i][j] = 0;
    }
  }
  load_distances(memory.nearest, memory.farthest, in, at.row, first_query);
  fill_mask<kByDistance>(memory.mask, in, at, first_query, origin);
  add_logits<kByDistance>(p, memory, in, at, range, first_query, origin);
  for (int begin = 0; begin < in.value_size; begin += kDepth) {
    const int features = in.value_size - begin < kDepth ? in.value_size - begin : kDepth;
    fill_lines<kDepth, kDepthStride>(memory.content, kTile, begin, in.value_size, [&](int a, int f) {
      const bool there = first_query + a < in.queries;
      const T* const line = there ? line_of_query(back.dout, in.value_size, in, at, first_query + a) : nullptr;
      return load_quad(line, f, in.value_size, in.value_quads);
    });
    const int first_key = first_query - origin - (kByDistance ? kTile - 1 : 0);
    fill_lines<kDepth, kDepthStride>(kByDistance ? memory.band : memory.direct, kByDistance ? kBand : kTile, begin,
                                     in.value_size,
                                     [&](int n, int f) { return load_value(in, at, range, first_key + n, f); });
    __syncthreads();
    if constexpr (kByDistance) {
      add_band(ds, memory.content, memory.band, features);
    } else {
      add_direct(ds, memory.content, memory.direct, features);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    const int nearest = memory.nearest[a];
    const int farthest = memory.farthest[a];
    A log_sum = 0;
    A delta = 0;
    if (farthest >= nearest) {
      const int64_t line = (static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + first_query + a;
      log_sum = back.lse[line];
      delta = back.delta[line];
      // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
      if (log_sum == -std::numeric_limits<A>::infinity()) log_sum = 0;
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int distance = distance_of<kByDistance>(origin, a, thread_x() + j * kSide);
      const bool seen = distance >= nearest && distance <= farthest;
      const A probability = seen ? std::exp(p[i][j] + bias_of(in, at, distance) - log_sum) : A{0};
      const A factor = seen ? kept<kByDistance>(memory.mask, in, at, origin, a, distance) : A{0};
      p[i][j] = probability * factor;
      ds[i][j] = seen ? probability * (ds[i][j] * factor - delta) : A{0};
    }
  }
}

template <typename A>
__device__ inline A sum_of_weights(const A* weights) {
  A sum = 0;
  for (int x = 0; x < kTile; x += kQuad) {
    const Quad<A> w = *reinterpret_cast<const Quad<A>*>(weights + x);
    for (int n = 0; n < kQuad; ++n) sum += w.x[n];
  }
  return sum;
}

}  // namespace quire::cuda
