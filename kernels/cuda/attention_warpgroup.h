// Attention in bf16 by warpgroups (warpgroup.h): what its kernels share. A block of two warpgroups has 128 queries or
// keys, a warpgroup 64 of them and a warp 16, and goes over tiles of what they are paired with: while a tile is
// multiplied the next one is on its way to shared memory. These kernels have no dropout and no values of more than 128
// features, and the backward pass with terms of Transformer-XL no heads of more than 64; attention_mma.h has.
#pragma once

#include <limits>

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda/warpgroup.h"

namespace quire::cuda {

inline constexpr int kGroups = 2;
inline constexpr int kGroupedThreads = kGroups * kGroupThreads;
inline constexpr int kGroupedRows = kGroups * kGroupRows;

// Calls function(width, relative) with the features of a line in shared memory and whether there are terms of
// Transformer-XL, both integral constants.
template <typename Function>
void with_panels(int64_t size, int64_t value_size, bool relative, Function&& function) {
  const auto with_width = [&](auto width) {
    if (relative) return function(width, std::true_type{});
    function(width, std::false_type{});
  };
  if (size <= 64 && value_size <= 64) return with_width(std::integral_constant<int, 64>{});
  with_width(std::integral_constant<int, 128>{});
}

// Copies lines first + order(0).. to a tile.
template <int kWidth, int kLines, typename Order = InOrder>
__device__ inline void copy_tile(const SharedPanels<kWidth, kLines>& to, const TileLines& from, int first, int low,
                                 int high, Order order = {}) {
  copy_tile_lines<kLines, kGroupedThreads>(to, from, first, low, high, order);
}

// sums = or, when kAdd, += lines of x times lines of y, over kWidth features.
template <int kWidth, bool kAdd = false, typename Left, typename Right, int kColumns>
__device__ inline void multiply_lines_later(SumFragment (&sums)[kColumns], const Left& x, int first_x, const Right& y) {
#pragma unroll
  for (int f = 0; f < kWidth; f += kMmaDepth) multiply_later(sums, x.along(first_x, f), y.along(0, f), kAdd || f > 0);
}

// Sums of all columns as left matrices of a product over the columns.
template <int kSteps>
__device__ inline void pack_weights(LeftFragment (&to)[kSteps], const SumFragment (&sums)[2 * kSteps]) {
#pragma unroll
  for (int n = 0; n < kSteps; ++n) to[n] = as_weights(sums, n);
}
// totals += weights times lines of y.
template <int kSteps, typename Right, int kFeatures>
__device__ inline void multiply_weights_later(SumFragment (&totals)[kFeatures], const LeftFragment (&weights)[kSteps],
                                              const Right& y) {
#pragma unroll
  for (int n = 0; n < kSteps; ++n) multiply_later<true>(totals, weights[n], y.across(n * kMmaDepth), true);
}

// bias[n] of distance first + n, in powers of 2. count: at most kGroupedThreads.
__device__ inline void load_biases_of_tile(float* bias, int count, const AttentionOperands<bfloat16>& in,
                                           const Place& at, int first) {
  const int n = static_cast<int>(threadIdx.x);
  if (in.bias == nullptr || n >= count) return;
  bias[n] = first + n >= 0 ? bias_of(in, at, first + n) * kLog2E : 0.0F;
}

// What the softmax of a query was, and what it sees.
struct QueryStatistics {
  float log_sum, delta;  // log_sum in powers of 2
  Distances seen;
};
__device__ inline QueryStatistics statistics_of(const AttentionOperands<bfloat16>& in,
                                                const BackwardOperands<bfloat16>& back, const Place& at, int query) {
  QueryStatistics to{0, 0, distances_of(in, at.row, query)};
  if (to.seen.farthest < to.seen.nearest) return to;
  const int64_t line = (static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + query;
  const float stored = back.lse[line];
  // All logits are -inf: their exponentials are the zeros they should be.
  to.log_sum = stored == -std::numeric_limits<float>::infinity() ? 0 : stored * kLog2E;
  to.delta = back.delta[line];
  return to;
}

inline constexpr int kTileRows = 64;  // keys or queries of a tile of the backward pass

// Of the queries of a tile, in two steps: what is loaded may be on its way while something else is computed.
struct TileStatistics {
  QueryStatistics mine;

  __device__ void load(const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back, const Place& at,
                       int first_query) {
    const int a = static_cast<int>(threadIdx.x);
    if (a < kTileRows) mine = statistics_of(in, back, at, first_query + a);
  }
  // To the places of a step in shared memory.
  template <typename Memory>
  __device__ void store(const Memory& memory, int step) const {
    const int a = static_cast<int>(threadIdx.x);
    if (a >= kTileRows) return;
    memory.log_sum(step)[a] = mine.log_sum;
    memory.delta(step)[a] = mine.delta;
    memory.nearest(step)[a] = mine.seen.nearest;
    memory.farthest(step)[a] = mine.seen.farthest;
  }
};

// Whether these kernels take a call, and the backward pass of one that tensor cores take: also the device must have
// their instructions and enough shared memory. values_like: out, or dout.
bool suits_warpgroups(const Tensor& values_like, const ops::AttentionInputs& in, const AttentionSizes& sizes);
bool backward_suits_warpgroups(const Tensor& dout, const ops::AttentionInputs& in, const AttentionSizes& sizes);
void attention_by_warpgroups(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                             const AttentionSizes& sizes);
void query_gradient_by_warpgroups(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back);
void key_gradient_by_warpgroups(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                const BackwardOperands<bfloat16>& back);

}  // namespace quire::cuda
