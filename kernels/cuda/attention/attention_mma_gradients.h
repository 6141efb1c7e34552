// Functions that the three passes of attention's gradients on tensor cores share, and the shared memory of each pass.
#pragma once

#include "kernels/cuda/attention/attention_mma.h"

namespace quire::cuda {

inline constexpr int kColumns = kMmaTile / kMmaColumns;

// Holds what the backward passes know of the 64 queries of a tile, in shared memory.
struct Statistics {
  float* log_sum;  // in powers of 2
  float* delta;
  int* nearest;
  int* farthest;
  static constexpr int kWords = 4 * kMmaTile;

  __device__ explicit Statistics(float* begin)
      : log_sum(begin),
        delta(begin + kMmaTile),
        nearest(reinterpret_cast<int*>(begin + 2 * kMmaTile)),
        farthest(nearest + kMmaTile) {}

  __device__ void load(const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back, const Place& at,
                       int first_query) const {
    const int a = static_cast<int>(threadIdx.x);
    if (a >= kMmaTile) return;
    const Distances seen = distances_of(in, at.row, first_query + a);
    nearest[a] = seen.nearest;
    farthest[a] = seen.farthest;
    log_sum[a] = 0;
    delta[a] = 0;
    if (seen.farthest < seen.nearest) return;
    const int64_t line = (static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + first_query + a;
    const float stored = back.lse[line];
    // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
    log_sum[a] = stored == -std::numeric_limits<float>::infinity() ? 0 : stored * kLog2E;
    delta[a] = back.delta[line];
  }
};

// Returns the bytes of a tile's dropout mask.
inline constexpr size_t mask_bytes(bool dropout) {
  return dropout ? kMmaTile * kMaskGroups * sizeof(MaskGroup) : 0;
}

// Loads bias[n], the bias of distance first + n, in powers of 2.
__device__ inline void load_biases(float* bias, int count, const AttentionOperands<bfloat16>& in, const Place& at,
                                   int first) {
  if (in.bias == nullptr) return;
  for (int n = static_cast<int>(threadIdx.x); n < count; n += kMmaThreads) {
    bias[n] = first + n >= 0 ? bias_of(in, at, first + n) * kLog2E : 0.0F;
  }
}

// Copies dout of the queries of a tile.
template <int kWidth>
__device__ inline void copy_output_gradients(const SharedLines<kWidth>& to, const AttentionOperands<bfloat16>& in,
                                             const BackwardOperands<bfloat16>& back, const Place& at, int first_query) {
  copy_tile_lines<kMmaTile>(to, queries_of(in, at, back.dout, in.value_size), first_query, 0, in.queries);
}

// Holds a pair's probability as it multiplied the values, after dropout, and the gradient of its logit. In
// gradient_of_pair, `product` is that of query and key, with terms of distances, and `dp` that of dout and value.
struct PairGradient {
  float p, ds;
};
__device__ inline PairGradient gradient_of_pair(float product, float dp, float bias, float scale, bool seen,
                                                float log_sum, float delta, float kept) {
  if (!seen) return {0, 0};
  const float probability = exp2f(product * scale + bias - log_sum);
  return {probability * kept, probability * (dp * kept - delta)};
}

template <int kWidth, bool kRelative>
struct QueryMemory {
  static constexpr int kLines = 4 * kMmaTile + (kRelative ? 3 * kMmaTile : 0);
  static constexpr int kDistanceWidth = 128;  // at least kStrip
  static constexpr int kDistanceValues = kRelative ? kMmaWarps * kMmaRows * kDistanceWidth : 0;
  static constexpr int kStrips = kRelative ? kMmaWarps * kMmaRows * kStripStride : 0;
  static constexpr int kBiases = 2 * kMmaTile;

  SharedLines<kWidth> queries, douts, keys, values, positions, terms;
  SharedLines<kDistanceWidth> by_distance;  // of a warp: gradients of logits by distance
  float* strip;                             // of a warp
  float* bias;                              // of distance origin - 63 + n
  Statistics statistics;
  MaskGroup* mask;

  static size_t bytes(bool dropout) {
    const size_t words = kStrips + kBiases + Statistics::kWords;
    return (kLines * kWidth + kDistanceValues) * sizeof(bfloat16) + words * sizeof(uint32_t) + mask_bytes(dropout);
  }

  __device__ QueryMemory() : statistics(biases() + kBiases) {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kMmaTile * kWidth};
    keys = {douts.begin + kMmaTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    positions = {values.begin + kMmaTile * kWidth};
    terms = {positions.begin + kMmaTile * kWidth};
    by_distance = {queries.begin + kLines * kWidth + warp_of_block() * kMmaRows * kDistanceWidth};
    bias = biases();
    strip = bias - kStrips + warp_of_block() * kMmaRows * kStripStride;
    mask = reinterpret_cast<MaskGroup*>(bias + kBiases + Statistics::kWords);
  }

 private:
  static __device__ float* biases() {
    return reinterpret_cast<float*>(dynamic_shared<bfloat16>() + kLines * kWidth + kDistanceValues) + kStrips;
  }
};

template <int kWidth, bool kRelative>
struct KeyMemory {
  static constexpr int kLines = 4 * kMmaTile + (kRelative ? 3 * kMmaTile : 0);
  static constexpr int kStrips = kRelative ? kMmaTile * kStripStride : 0;
  static constexpr int kBiases = 2 * kMmaTile;

  SharedLines<kWidth> queries, douts, keys, values, positions, terms;
  float* strips;  // [64 queries]
  float* bias;    // of distance origin - 63 + n
  Statistics statistics;
  MaskGroup* mask;

  static size_t bytes(bool dropout) {
    const size_t words = kStrips + kBiases + Statistics::kWords;
    return kLines * kWidth * sizeof(bfloat16) + words * sizeof(uint32_t) + mask_bytes(dropout);
  }

  __device__ KeyMemory() : statistics(biases() + kBiases) {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kMmaTile * kWidth};
    keys = {douts.begin + kMmaTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    positions = {values.begin + kMmaTile * kWidth};
    terms = {positions.begin + kMmaTile * kWidth};
    bias = biases();
    strips = bias - kStrips;
    mask = reinterpret_cast<MaskGroup*>(bias + kBiases + Statistics::kWords);
  }

 private:
  static __device__ float* biases() {
    return reinterpret_cast<float*>(dynamic_shared<bfloat16>() + kLines * kWidth) + kStrips;
  }
};

template <int kWidth, bool kRelative>
struct DistanceMemory {
  static constexpr int kLines = 6 * kMmaTile + (kRelative ? 2 * kMmaTile : 0);
  static constexpr int kStrips = kMmaTile * kStripStride;
  static constexpr int kPairs = kRelative ? kMmaTile * kMmaTile : 0;
  static constexpr int kBiases = kMmaTile;

  SharedLines<kWidth> queries, douts, keys, values, positions, terms;
  SharedLines<kMmaTile> pairs;  // gradients of logits, by query and distance
  float* strip;                 // of a warp
  float* bias;                  // of the block's distances
  float* sums;                  // [warps, 64]
  Statistics statistics;
  MaskGroup* mask;

  static size_t bytes(bool dropout) {
    const size_t words = kStrips + kBiases + kMmaWarps * kMmaTile + Statistics::kWords;
    return (kLines * kWidth + kPairs) * sizeof(bfloat16) + words * sizeof(uint32_t) + mask_bytes(dropout);
  }

  __device__ DistanceMemory() : statistics(biases() + kBiases) {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kMmaTile * kWidth};
    keys = {douts.begin + kMmaTile * kWidth};
    values = {keys.begin + 2 * kMmaTile * kWidth};
    positions = {values.begin + 2 * kMmaTile * kWidth};
    terms = {positions.begin + kMmaTile * kWidth};
    pairs = {queries.begin + kLines * kWidth};
    bias = biases();
    strip = bias - kStrips + warp_of_block() * kMmaRows * kStripStride;
    sums = bias + kBiases + Statistics::kWords;
    mask = reinterpret_cast<MaskGroup*>(sums + kMmaWarps * kMmaTile);
  }

 private:
  static __device__ float* biases() {
    return reinterpret_cast<float*>(dynamic_shared<bfloat16>() + kLines * kWidth + kPairs) + kStrips;
  }
};

// Calls function(width, relative), both integral constants.
template <typename Function>
void with_kind(int64_t size, int64_t value_size, bool relative, Function&& function) {
  const auto with_width = [&](auto width) {
    if (relative) return function(width, std::true_type{});
    function(width, std::false_type{});
  };
  if (size <= 64 && value_size <= 64) return with_width(std::integral_constant<int, 64>{});
  with_width(std::integral_constant<int, kMmaWidest>{});
}
template <typename Function>
void with_kind(const AttentionOperands<bfloat16>& in, Function&& function) {
  with_kind(in.size, in.value_size, in.r != nullptr, function);
}

}  // namespace quire::cuda
