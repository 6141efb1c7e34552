// As attention_backward.cu, on tensor cores: three passes, each with one writer for every sum.
#include <algorithm>

#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

constexpr int kColumns = kMmaTile / kMmaColumns;

// Of the 64 queries of a tile.
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
    // All logits are -inf: their exponentials are the zeros they should be.
    log_sum[a] = stored == -std::numeric_limits<float>::infinity() ? 0 : stored * kLog2E;
    delta[a] = back.delta[line];
  }
};

// Of the mask of a tile.
constexpr size_t mask_bytes(bool dropout) {
  return dropout ? kMmaTile * kMaskGroups * sizeof(MaskGroup) : 0;
}

// bias[n] of distance first + n, in powers of 2.
__device__ inline void load_biases(float* bias, int count, const AttentionOperands<bfloat16>& in, const Place& at,
                                   int first) {
  if (in.bias == nullptr) return;
  for (int n = static_cast<int>(threadIdx.x); n < count; n += kMmaThreads) {
    bias[n] = first + n >= 0 ? bias_of(in, at, first + n) * kLog2E : 0.0F;
  }
}

// dout of the queries of a tile.
template <int kWidth>
__device__ inline void copy_output_gradients(const SharedLines<kWidth>& to, const AttentionOperands<bfloat16>& in,
                                             const BackwardOperands<bfloat16>& back, const Place& at, int first_query) {
  copy_tile_lines<kMmaTile>(to, queries_of(in, at, back.dout, in.value_size), first_query, 0, in.queries);
}

// A pair's probability as it multiplied the values, after dropout, and the gradient of its logit. `product`: of query
// and key, with terms of distances; `dp`: of dout and value.
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
  static constexpr int kTurnedWidth = 128;  // at least kStrip
  static constexpr int kTurned = kRelative ? kMmaWarps * kMmaRows * kTurnedWidth : 0;
  static constexpr int kStrips = kRelative ? kMmaWarps * kMmaRows * kStripStride : 0;
  static constexpr int kBiases = 2 * kMmaTile;

  SharedLines<kWidth> queries, douts, keys, values, positions, terms;
  SharedLines<kTurnedWidth> turned;  // of a warp: gradients of logits by distance
  float* strip;                      // of a warp
  float* bias;                       // of distance origin - 63 + n
  Statistics statistics;
  MaskGroup* mask;

  static size_t bytes(bool dropout) {
    const size_t words = kStrips + kBiases + Statistics::kWords;
    return (kLines * kWidth + kTurned) * sizeof(bfloat16) + words * sizeof(uint32_t) + mask_bytes(dropout);
  }

  __device__ QueryMemory() : statistics(biases() + kBiases) {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kMmaTile * kWidth};
    keys = {douts.begin + kMmaTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    positions = {values.begin + kMmaTile * kWidth};
    terms = {positions.begin + kMmaTile * kWidth};
    turned = {queries.begin + kLines * kWidth + warp_of_block() * kMmaRows * kTurnedWidth};
    bias = biases();
    strip = bias - kStrips + warp_of_block() * kMmaRows * kStripStride;
    mask = reinterpret_cast<MaskGroup*>(bias + kBiases + Statistics::kWords);
  }

 private:
  static __device__ float* biases() {
    return reinterpret_cast<float*>(dynamic_shared<bfloat16>() + kLines * kWidth + kTurned) + kStrips;
  }
};

// dq of a row, head and tile of queries.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kMmaThreads)
    query_gradient_mma_kernel(bfloat16* dq, AttentionOperands<bfloat16> in, BackwardOperands<bfloat16> back) {
  const QueryMemory<kWidth, kRelative> memory;
  const int tiles = ceil_div(in.queries, kMmaTile);
  const int line = static_cast<int>(blockIdx.x) / tiles;
  const int query_tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
  const int first_query = query_tile * kMmaTile;
  const int first_line = warp_of_block() * kMmaRows;
  const Place at = place_of(in, line / in.heads, line % in.heads);
  const VisibleRange range = back.ranges[at.row * tiles + query_tile];
  const float scale = in.scale * kLog2E;
  const int first_tile = (range.low + in.slots) / kMmaTile;

  const auto fetch = [&](int tile) {
    const int first_key = tile * kMmaTile - in.slots;
    const int origin = first_query - first_key;
    copy_keys<kMmaTile>(memory.keys, in, at, range, first_key);
    copy_values<kMmaTile>(memory.values, in, at, range, first_key);
    if (kRelative) {
      const int half = tile % 2 * kMmaTile;
      copy_terms<kMmaTile>(memory.terms, half, in, at, origin - (kMmaTile - 1));
      if (tile == first_tile) copy_terms<kMmaTile>(memory.terms, kMmaTile - half, in, at, origin + 1);
    }
    load_biases(memory.bias, 2 * kMmaTile - 1, in, at, origin - (kMmaTile - 1));
  };

  load_queries<kMmaTile>(memory.queries, memory.positions, in, at, first_query);
  copy_output_gradients(memory.douts, in, back, at, first_query);
  memory.statistics.load(in, back, at, first_query);
  if constexpr (kRelative) {
    // Each line has 64 pairs among its 80 distances, always the same; the others stay zero.
    for (int item = lane_of_warp(); item < kMmaRows * memory.turned.kChunks; item += kWarp) {
      *reinterpret_cast<Words*>(memory.turned.begin + item * memory.turned.kChunk) = {};
    }
  }
  if (first_tile * kMmaTile - in.slots < range.high) fetch(first_tile);

  SumFragment totals[1][kWidth / kMmaColumns] = {};
  for (int tile = first_tile; tile * kMmaTile - in.slots < range.high; ++tile) {
    const int origin = first_query - (tile * kMmaTile - in.slots);
    await_copies();
    if (in.dropout) fill_mask_of_warp<false>(memory.mask, in, at, first_query, origin, first_line);
    __syncthreads();
    SumFragment ds[1][kColumns] = {};
    SumFragment dp[1][kColumns] = {};
    multiply_lines(ds, memory.queries, first_line, memory.keys, 0, in.size);
    multiply_lines(dp, memory.douts, first_line, memory.values, 0, in.value_size);
    if constexpr (kRelative) {
      multiply_strip(memory.strip, memory.positions, first_line, memory.terms, tile % 2 * kMmaTile + first_line,
                     in.size);
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_of_sum(i);
      const int a = first_line + row;
      const int nearest = memory.statistics.nearest[a];
      const int farthest = memory.statistics.farthest[a];
      const float log_sum = memory.statistics.log_sum[a];
      const float delta = memory.statistics.delta[a];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int c = n * kMmaColumns + column_of_sum(i);
        const int distance = origin + a - c;
        float product = ds[0][n].x[i];
        if (kRelative) product += memory.strip[row * kStripStride + row + kMmaTile - 1 - c];
        const float bias = in.bias == nullptr ? 0.0F : memory.bias[a - c + kMmaTile - 1];
        const bool seen = distance >= nearest && distance <= farthest;
        const float factor = seen ? kept<false>(memory.mask, in, at, origin, a, distance) : 0.0F;
        ds[0][n].x[i] = gradient_of_pair(product, dp[0][n].x[i], bias, scale, seen, log_sum, delta, factor).ds;
        if (kRelative) memory.turned.at(row, row + kMmaTile - 1 - c) = bfloat16(ds[0][n].x[i]);
      }
    }
    multiply_weights(totals, ds, memory.keys, 0, in.size);
    if constexpr (kRelative) {
      __syncwarp();
#pragma unroll
      for (int step = 0; step < kStrip / kMmaDepth; ++step) {
        const LeftFragment left = memory.turned.left(0, step * kMmaDepth);
        const int first_term = (tile % 2 * kMmaTile + first_line + step * kMmaDepth) % (2 * kMmaTile);
#pragma unroll
        for (int n = 0; n < kWidth / kMmaColumns; n += 2) {
          if (n * kMmaColumns >= in.size) break;
          RightFragment right[2];
          memory.terms.right_turned(right, first_term, n * kMmaColumns);
          multiply_add(totals[0][n], left, right[0]);
          multiply_add(totals[0][n + 1], left, right[1]);
        }
      }
    }
    __syncthreads();  // nobody reads this tile any more
    if ((tile + 1) * kMmaTile - in.slots < range.high) fetch(tile + 1);
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + first_line + row_of_sum(2 * half);
    if (query >= in.queries) continue;
    bfloat16* const to = line_of_query(dq, in.size, in, at, query);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (f < in.size) store_features(to + f, totals[0][n], half, in.scale);
    }
  }
}

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

// Of a row, key head and tile of keys; a warp has 16 of the keys, and turns to 32 queries at a time. Query heads of the
// group follow each other.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kMmaThreads)
    key_gradient_mma_kernel(KeyGradients<bfloat16> to, AttentionOperands<bfloat16> in,
                            BackwardOperands<bfloat16> back) {
  constexpr int kAtOnce = kMmaTile / 2;
  const int keys = in.slots + in.queries;
  const int key_tiles = ceil_div(keys, kMmaTile);
  const int line = static_cast<int>(blockIdx.x) / key_tiles;
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kMmaTile - in.slots;
  const bool any_cached = first_key < 0 && (to.dcache_k != nullptr || to.dcache_v != nullptr);
  const bool any_new = first_key + kMmaTile > 0 && (to.dk != nullptr || to.dv != nullptr);
  if (!any_cached && !any_new && to.sums == nullptr) return;  // the whole block

  const KeyMemory<kWidth, kRelative> memory;
  const int first_line = warp_of_block() * kMmaRows;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const float scale = in.scale * kLog2E;

  // Whatever lies where nobody looks: a key is a line of its own pairs alone.
  const VisibleRange all{-in.slots, in.queries, 0};
  const Place any = place_of(in, row, kv_head * group);
  copy_keys<kMmaTile>(memory.keys, in, any, all, first_key);
  copy_values<kMmaTile>(memory.values, in, any, all, first_key);

  SumFragment key_totals[1][kWidth / kMmaColumns] = {};
  SumFragment value_totals[1][kWidth / kMmaColumns] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Place at = place_of(in, row, head);
    float key_sum[2] = {0, 0};
    for (int tile = first_tile_of(in, first_key); tile < query_tiles; ++tile) {
      if (!sees_keys(back.ranges[row * query_tiles + tile], first_key, kMmaTile)) continue;
      const int first_query = tile * kMmaTile;
      const int origin = first_query - first_key;
      load_queries<kMmaTile>(memory.queries, memory.positions, in, at, first_query);
      copy_output_gradients(memory.douts, in, back, at, first_query);
      memory.statistics.load(in, back, at, first_query);
      load_biases(memory.bias, 2 * kMmaTile - 1, in, at, origin - (kMmaTile - 1));
      fill_mask<false>(memory.mask, in, at, first_query, origin);
      if (kRelative) copy_terms<2 * kMmaTile>(memory.terms, 0, in, at, origin - (kMmaTile - 1));
      await_copies();
      __syncthreads();
      if constexpr (kRelative) {
        multiply_strip(memory.strips + first_line * kStripStride, memory.positions, first_line, memory.terms,
                       first_line, in.size);
        __syncthreads();
      }
#pragma unroll 1
      for (int first = 0; first < kMmaTile; first += kAtOnce) {
        SumFragment p[1][kAtOnce / kMmaColumns] = {};
        SumFragment ds[1][kAtOnce / kMmaColumns] = {};
        multiply_lines(p, memory.keys, first_line, memory.queries, first, in.size);
        multiply_lines(ds, memory.values, first_line, memory.douts, first, in.value_size);
#pragma unroll
        for (int n = 0; n < kAtOnce / kMmaColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int a = first + n * kMmaColumns + column_of_sum(i);
            const int c = first_line + row_of_sum(i);
            const int distance = origin + a - c;
            float product = p[0][n].x[i];
            if (kRelative) product += memory.strips[a * kStripStride + a % kMmaRows + kMmaTile - 1 - c];
            const float bias = in.bias == nullptr ? 0.0F : memory.bias[a - c + kMmaTile - 1];
            const bool seen = distance >= memory.statistics.nearest[a] && distance <= memory.statistics.farthest[a];
            const float factor = seen ? kept<false>(memory.mask, in, at, origin, a, distance) : 0.0F;
            const PairGradient pair =
                gradient_of_pair(product, ds[0][n].x[i], bias, scale, seen, memory.statistics.log_sum[a],
                                 memory.statistics.delta[a], factor);
            p[0][n].x[i] = pair.p;
            ds[0][n].x[i] = pair.ds;
            key_sum[i / 2] += pair.ds;
          }
        }
        multiply_weights(value_totals, p, memory.douts, first, in.value_size);
        multiply_weights(key_totals, ds, memory.queries, first, in.size);
      }
      __syncthreads();  // nobody reads this tile any more
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = sum_of_row(key_sum[half]);
      const int key = first_key + in.slots + first_line + row_of_sum(2 * half);
      if (to.sums != nullptr && key < keys && lane_of_warp() % 4 == 0) {
        to.sums[(static_cast<int64_t>(row) * in.heads + head) * keys + key] = sum;
      }
    }
  }

  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = first_key + first_line + row_of_sum(2 * half);
    if (position >= in.queries) continue;
    const bool has_keys = (position < 0 ? to.dcache_k : to.dk) != nullptr;
    const bool has_values = (position < 0 ? to.dcache_v : to.dv) != nullptr;
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (has_keys && f < in.size) {
        store_features(line_of_key(to.dk, to.dcache_k, in.size, in, any, position) + f, key_totals[0][n], half,
                       in.scale);
      }
      if (has_values && f < in.value_size) {
        store_features(line_of_key(to.dv, to.dcache_v, in.value_size, in, any, position) + f, value_totals[0][n], half,
                       1.0F);
      }
    }
  }
}

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

// Of a head, tile of distances and group. A group has a share of all tiles of queries of all rows.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kMmaThreads)
    distance_gradient_mma_kernel(float* dr_parts,    // [groups, N, H, D] or null
                                 float* sums_parts,  // [groups, H, N]: of the gradients of logits at a distance
                                 int groups, AttentionOperands<bfloat16> in, BackwardOperands<bfloat16> back) {
  const DistanceMemory<kWidth, kRelative> memory;
  const int distance_tiles = ceil_div(in.entries, kMmaTile);
  const int group = static_cast<int>(blockIdx.x) % groups;
  const int line = static_cast<int>(blockIdx.x) / groups;
  const int first_distance = line % distance_tiles * kMmaTile;
  const int head = line / distance_tiles;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const int64_t units = static_cast<int64_t>(in.rows) * query_tiles;
  const int first_line = warp_of_block() * kMmaRows;
  const float scale = in.scale * kLog2E;

  const Place any = place_of(in, 0, head);
  load_biases(memory.bias, kMmaTile, in, any, first_distance);
  if (kRelative) copy_terms<kMmaTile>(memory.terms, 0, in, any, first_distance);

  SumFragment totals[1][kWidth / kMmaColumns] = {};
  float sums[kColumns][2] = {};
  for (int64_t unit = units * group / groups; unit < units * (group + 1) / groups; ++unit) {
    const VisibleRange range = back.ranges[unit];
    if (range.far < first_distance) continue;
    const int first_query = static_cast<int>(unit % query_tiles) * kMmaTile;
    const Place at = place_of(in, static_cast<int>(unit / query_tiles), head);
    // Query a and distance e belong to key a - e + 63.
    const int first_key = first_query - first_distance - (kMmaTile - 1);
    copy_keys<2 * kMmaTile>(memory.keys, in, at, range, first_key);
    copy_values<2 * kMmaTile>(memory.values, in, at, range, first_key);
    load_queries<kMmaTile>(memory.queries, memory.positions, in, at, first_query);
    copy_output_gradients(memory.douts, in, back, at, first_query);
    memory.statistics.load(in, back, at, first_query);
    if (in.dropout) fill_mask_of_warp<true>(memory.mask, in, at, first_query, first_distance, first_line);
    await_copies();
    __syncthreads();

    SumFragment ds[1][kColumns] = {};
    SumFragment dp[1][kColumns] = {};
    if (kRelative) multiply_lines(ds, memory.positions, first_line, memory.terms, 0, in.size);
    // Products by key move to the columns of their distances.
    multiply_strip(memory.strip, memory.queries, first_line, memory.keys, first_line, in.size);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_of_sum(i);
        ds[0][n].x[i] += memory.strip[row * kStripStride + row + kMmaTile - 1 - n * kMmaColumns - column_of_sum(i)];
      }
    }
    __syncwarp();
    multiply_strip(memory.strip, memory.douts, first_line, memory.values, first_line, in.value_size);
    __syncwarp();
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = row_of_sum(i);
        dp[0][n].x[i] = memory.strip[row * kStripStride + row + kMmaTile - 1 - n * kMmaColumns - column_of_sum(i)];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int a = first_line + row_of_sum(i);
      const int nearest = memory.statistics.nearest[a];
      const int farthest = memory.statistics.farthest[a];
      const float log_sum = memory.statistics.log_sum[a];
      const float delta = memory.statistics.delta[a];
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int e = n * kMmaColumns + column_of_sum(i);
        const int distance = first_distance + e;
        const float bias = in.bias == nullptr ? 0.0F : memory.bias[e];
        const bool seen = distance >= nearest && distance <= farthest;
        const float factor = seen ? kept<true>(memory.mask, in, at, first_distance, a, distance) : 0.0F;
        ds[0][n].x[i] = gradient_of_pair(ds[0][n].x[i], dp[0][n].x[i], bias, scale, seen, log_sum, delta, factor).ds;
        sums[n][i % 2] += ds[0][n].x[i];
      }
    }
    if constexpr (kRelative) {
      store_weights(memory.pairs, first_line, ds[0]);
      __syncthreads();
      // A warp has 16 distances of all queries.
      multiply_turned(totals[0], memory.pairs, first_line, memory.positions, in.size);
    }
    __syncthreads();  // nobody reads this tile any more
  }
  await_copies();

#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      for (int bits = 4; bits < kWarp; bits *= 2) sums[n][i] += __shfl_xor_sync(kAllLanes, sums[n][i], bits);
      if (lane_of_warp() < 4) memory.sums[warp_of_block() * kMmaTile + n * kMmaColumns + column_of_sum(i)] = sums[n][i];
    }
  }
  __syncthreads();
  const int mine = first_distance + static_cast<int>(threadIdx.x);
  if (threadIdx.x < kMmaTile && mine < in.entries) {
    float sum = 0;
    for (int warp = 0; warp < kMmaWarps; ++warp) sum += memory.sums[warp * kMmaTile + static_cast<int>(threadIdx.x)];
    sums_parts[(static_cast<int64_t>(group) * in.heads + head) * in.entries + in.entries - 1 - mine] = sum;
  }
  if (dr_parts == nullptr) return;
  float* const part = dr_parts + static_cast<int64_t>(group) * in.entries * in.heads * in.size;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int distance = first_distance + first_line + row_of_sum(2 * half);
    if (distance >= in.entries) continue;
    float* const to = line_of_distance(part, in, Place{0, head, 0, 0}, distance);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (f >= in.size) continue;
      *reinterpret_cast<TwoSums*>(to +
                                  f) = {{totals[0][n].x[2 * half] * in.scale, totals[0][n].x[2 * half + 1] * in.scale}};
    }
  }
}

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

}  // namespace

bool backward_suits_tensor_cores(const ops::AttentionGradients& gradients, const Tensor& dout,
                                 const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  if (!suits_tensor_cores(dout, in, sizes) ||
      !in_chunks(sizes.size, {&gradients.dq, &gradients.dk, &gradients.dcache_k}) ||
      !in_chunks(sizes.value_size, {&gradients.dv, &gradients.dcache_v})) {
    return false;
  }
  size_t most = 0;
  with_kind(sizes.size, sizes.value_size, in.r.defined(), [&](auto width, auto relative) {
    const bool dropout = in.dropout > 0;
    most = std::max(QueryMemory<width, relative>::bytes(dropout), KeyMemory<width, relative>::bytes(dropout));
    if (DistanceGradientScratch::needed(gradients)) {
      most = std::max(most, DistanceMemory<width, relative>::bytes(dropout));
    }
  });
  return has_shared_memory(most);
}

void query_gradient_on_tensor_cores(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                    const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(query_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kMmaTile))), kMmaThreads,
           QueryMemory<width, relative>::bytes(in.dropout), dq.data<bfloat16>(), in, back);
  });
}

void key_gradient_on_tensor_cores(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(key_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.rows * in.kv_heads * ceil_div(in.slots + in.queries, kMmaTile))), kMmaThreads,
           KeyMemory<width, relative>::bytes(in.dropout), to, in, back);
  });
}

void distance_gradient_on_tensor_cores(float* r_parts, float* sum_parts, int64_t groups,
                                       const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(distance_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.heads * ceil_div(in.entries, kMmaTile) * groups)), kMmaThreads,
           DistanceMemory<width, relative>::bytes(in.dropout), r_parts, sum_parts, groups, in, back);
  });
}

}  // namespace quire::cuda
