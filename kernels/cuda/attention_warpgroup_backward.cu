// As attention_mma_backward.cu, by warpgroups: a pass over keys for the gradients of queries, and one over queries for
// those of keys and values, so that each sum has one writer. Both make logits anew.
#include <algorithm>

#include "kernels/cuda/attention_warpgroup_terms.h"

namespace quire::cuda {

namespace {

constexpr int kColumns = kTileRows / kMmaColumns;

// Shared memory of a block: 128 lines of two operands, and those of two tiles, and with terms of Transformer-XL kBlocks
// blocks of 64 of them.
template <int kWidth, int kBlocks = 0>
struct BackwardMemory {
  using Own = SharedPanels<kWidth, kGroupedRows>;
  using Tile = SharedPanels<kWidth, kTileRows>;
  static constexpr int kBiases = kGroupedRows + kTileRows;
  static constexpr int kStatistics = 4 * kTileRows;
  static constexpr int kWords = kBiases + kStatistics;  // of a tile
  using Terms = TermBlocks<kWidth, kBlocks>;

  Own first, second;
  bfloat16* tiles;
  Terms terms;
  float* words;

  static size_t bytes() {
    return Own::kAlignment + (2 * Own::kValues + 4 * Tile::kValues + Terms::kValues) * sizeof(bfloat16) +
           (2 * kWords + Terms::kWords) * sizeof(float);
  }

  __device__ BackwardMemory() {
    first = {first_panel()};
    second = {first.begin + Own::kValues};
    tiles = second.begin + Own::kValues;
    terms.begin = tiles + 4 * Tile::kValues;
    words = reinterpret_cast<float*>(terms.begin + Terms::kValues);
    terms.biases = words + 2 * kWords;
  }
  __device__ Tile first_of(int step) const { return {tiles + step % 2 * (2 * Tile::kValues)}; }
  __device__ Tile second_of(int step) const { return {first_of(step).begin + Tile::kValues}; }
  __device__ float* bias(int step) const { return words + step % 2 * kWords; }
  __device__ float* log_sum(int step) const { return bias(step) + kBiases; }
  __device__ float* delta(int step) const { return log_sum(step) + kTileRows; }
  __device__ int* nearest(int step) const { return reinterpret_cast<int*>(delta(step) + kTileRows); }
  __device__ int* farthest(int step) const { return nearest(step) + kTileRows; }

 protected:
  __device__ float* end() const { return terms.biases + Terms::kWords; }
};

// With what the warps move between keys and distances.
template <int kWidth>
struct QueryTermMemory : BackwardMemory<kWidth, 4> {
  using Base = BackwardMemory<kWidth, 4>;
  using Strip = TermStrip<4, false>;
  static constexpr int kWarps = kGroupedThreads / kWarp;
  Strip strip;
  GradientStrip gradients;

  static size_t bytes() {
    return Base::bytes() + kWarps * (Strip::kWords * sizeof(float) + GradientStrip::kValues * sizeof(bfloat16));
  }
  __device__ QueryTermMemory() {
    strip.begin = Base::end() + warp_of_block() * Strip::kWords;
    auto* const behind = reinterpret_cast<bfloat16*>(Base::end() + kWarps * Strip::kWords);
    gradients.begin = behind + warp_of_block() * GradientStrip::kValues;
  }
};
// Strips of all queries of a tile, for each warpgroup.
template <int kWidth>
struct KeyTermMemory : BackwardMemory<kWidth, 6> {
  using Base = BackwardMemory<kWidth, 6>;
  using Strip = TermStrip<4>;
  static constexpr int kWarps = kGroupedThreads / kWarp;
  float* strips;  // of the warpgroup

  static size_t bytes() { return Base::bytes() + kWarps * Strip::kWords * sizeof(float); }
  __device__ KeyTermMemory() { strips = Base::end() + warp_of_block() / kGroupWarps * (kGroupWarps * Strip::kWords); }
  __device__ Strip strip() const { return {strips + warp_of_block() % kGroupWarps * Strip::kWords}; }
};
template <int kWidth, bool kRelative>
using KeyMemory = std::conditional_t<kRelative, KeyTermMemory<kWidth>, BackwardMemory<kWidth>>;
template <int kWidth, bool kRelative>
using QueryMemory = std::conditional_t<kRelative, QueryTermMemory<kWidth>, BackwardMemory<kWidth>>;

// What either of two neighbouring tiles of 64 queries sees; the second one may not be there.
__device__ inline VisibleRange range_of_both(const VisibleRange* ranges, int tile, int tiles) {
  VisibleRange both = ranges[tile];
  if (tile + 1 < tiles) {
    const VisibleRange other = ranges[tile + 1];
    both.low = other.low < both.low ? other.low : both.low;
    both.high = other.high > both.high ? other.high : both.high;
  }
  return both;
}

// dq of a row, head and 128 queries. A lane has two of them.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kGroupedThreads, kWidth == 64 && !kRelative ? 2 : 1)
    query_gradient_warpgroup_kernel(bfloat16* dq, AttentionOperands<bfloat16> in, BackwardOperands<bfloat16> back) {
  if constexpr (kHasWarpgroups) {
    constexpr int kFeatures = kWidth / kMmaColumns;
    using KeyOrder = std::conditional_t<kRelative, KeyOfLine, InOrder>;
    const QueryMemory<kWidth, kRelative> memory;
    const bool with_bias = !kRelative && in.bias != nullptr;
    [[maybe_unused]] const int group = warp_of_block() / kGroupWarps;
    const int tiles = ceil_div(in.queries, kGroupedRows);
    const int line = static_cast<int>(blockIdx.x) / tiles;
    const int query_tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
    const int first_query = query_tile * kGroupedRows;
    const int first_line = warp_of_block() / kGroupWarps * kGroupRows;
    const Place at = place_of(in, line / in.heads, line % in.heads);
    const int range_tiles = ceil_div(in.queries, kMmaTile);
    const VisibleRange range = range_of_both(back.ranges + static_cast<int64_t>(at.row) * range_tiles,
                                             query_tile * (kGroupedRows / kMmaTile), range_tiles);
    const float scale = in.scale * kLog2E;
    const TileLines keys = keys_of(in, at, in.k, in.cache_k, in.size);
    const TileLines values = keys_of(in, at, in.v, in.cache_v, in.value_size);
    const int first_tile = (range.low + in.slots) / kTileRows;
    [[maybe_unused]] const auto fetch_terms = [&](int block) {
      if constexpr (kRelative) memory.terms.fetch(block, in, at, first_query - (block * kTermTile - in.slots));
    };
    const auto fetch = [&](int tile) {
      const int first_key = tile * kTileRows - in.slots;
      copy_tile(memory.first_of(tile), keys, first_key, range.low, range.high, KeyOrder{});
      copy_tile(memory.second_of(tile), values, first_key, range.low, range.high, KeyOrder{});
      if constexpr (kRelative) {
        fetch_terms(tile);
      } else {
        load_biases_of_tile(memory.bias(tile), kGroupedRows + kTileRows - 1, in, at,
                            first_query - first_key - (kTileRows - 1));
      }
    };

    if constexpr (kRelative) {
      QueriesWithU<kWidth, kGroupedRows> queries;
      queries.load(in, at, first_query);
      queries.store(memory.first, in, at.head);
    } else {
      copy_tile(memory.first, queries_of(in, at, in.q, in.size), first_query, 0, in.queries);
    }
    copy_tile(memory.second, queries_of(in, at, back.dout, in.value_size), first_query, 0, in.queries);
    int row[2];
    QueryStatistics of[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row[half] = warp_of_block() * kMmaRows + row_of_sum(2 * half);
      of[half] = statistics_of(in, back, at, first_query + row[half]);
    }

    SumFragment totals[kFeatures] = {};
    [[maybe_unused]] LeftFragment queries[kWidth / kMmaDepth], douts[kWidth / kMmaDepth];
    if (first_tile * kTileRows - in.slots < range.high) {
      fetch(first_tile);
      if constexpr (kRelative) {
        // The blocks before the first one: their products with the queries of the first tile.
        fetch_terms(first_tile - 2);
        fetch_terms(first_tile - 1);
        memory.gradients.clear();
        publish_copies();
        __syncthreads();
        load_left(queries, memory.first);
        load_left(douts, memory.second);
        SumFragment products[kColumns];
        begin_products();
        multiply_left_later(products, queries, memory.terms.lines(first_tile - 1 - group));
        end_products();
        await_products<0>(products);
        memory.strip.move(products, memory.terms.bias(first_tile - 1 - group));
      }
    }
    int end_tile = first_tile;
    for (int tile = first_tile; tile * kTileRows - in.slots < range.high; ++tile) {
      const int first_key = tile * kTileRows - in.slots;
      const int origin = first_query - first_key;
      publish_copies();
      __syncthreads();  // keys and values are there, and nobody reads those of the tile before any more
      const auto fetch_next = [&] {
        if (first_key + kTileRows < range.high) fetch(tile + 1);
      };
      SumFragment ds[kColumns], dp[kColumns];
      begin_products();
      if constexpr (kRelative) {
        multiply_left_later(ds, queries, memory.terms.lines(tile - group));
        end_products();
        multiply_left_later(dp, douts, memory.second_of(tile));
        end_products();
        fetch_next();
        await_products<1>(ds);
        memory.strip.move(ds, memory.terms.bias(tile - group));
        begin_products();
        multiply_left_later<true>(ds, queries, memory.first_of(tile));
        end_products();
        await_products<0>(ds);
      } else {
        multiply_lines_later<kWidth>(ds, memory.first, first_line, memory.first_of(tile));
        end_products();
        multiply_lines_later<kWidth>(dp, memory.second, first_line, memory.second_of(tile));
        end_products();
        fetch_next();
        await_products<1>(ds);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = row[half];
        const float* const bias = memory.bias(tile) + a + kTileRows - 1;
        const bool whole =
            of[half].seen.nearest <= origin + a - (kTileRows - 1) && of[half].seen.farthest >= origin + a;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            const int c = n * kMmaColumns + column_of_sum(i);
            const float shift = with_bias ? bias[-c] - of[half].log_sum : -of[half].log_sum;
            ds[n].x[i] = power_of_two(fmaf(ds[n].x[i], scale, shift));
          }
        }
        if (!whole && kRelative) {
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int distance = origin + a - lane_of_warp() % 4 - key_of_product(n, i);
              const bool seen = distance >= of[half].seen.nearest && distance <= of[half].seen.farthest;
              if (!seen) ds[n].x[2 * half + i] = 0;
            }
          }
        } else if (!whole) {
          hide_unseen(ds, half, origin + a, of[half].seen.nearest, of[half].seen.farthest, 0);
        }
      }
      await_products<0>(dp);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) ds[n].x[i] *= dp[n].x[i] - of[half].delta;
        }
      }
      LeftFragment weights[kColumns / 2];
      pack_weights(weights, ds);
      if constexpr (kRelative) {
        // The block before has all of its gradients.
        memory.gradients.template store<true>(weights);
        __syncwarp();
        LeftFragment of_terms[kColumns / 2];
        memory.gradients.load(of_terms);
        __syncwarp();
        memory.gradients.template store<false>(weights);
        begin_products();
        multiply_weights_later(totals, weights, memory.first_of(tile));
        multiply_weights_later(totals, of_terms, memory.terms.lines(tile - 1 - group));
        end_products();
        end_tile = tile + 1;
        await_products<0>(totals, weights, of_terms);
      } else {
        begin_products();
        multiply_weights_later(totals, weights, memory.first_of(tile));
        end_products();
        await_products<0>(totals, weights);
      }
    }
    if constexpr (kRelative) {
      if (end_tile > first_tile) {
        LeftFragment weights[kColumns / 2] = {};
        memory.gradients.template store<true>(weights);
        __syncwarp();
        memory.gradients.load(weights);
        begin_products();
        multiply_weights_later(totals, weights, memory.terms.lines(end_tile - 1 - group));
        end_products();
        await_products<0>(totals, weights);
      }
    }
    publish_copies();

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + row[half];
      if (query >= in.queries) continue;
      bfloat16* const to = line_of_query(dq, in.size, in, at, query);
#pragma unroll
      for (int n = 0; n < kFeatures; ++n) {
        const int f = n * kMmaColumns + column_of_sum(0);
        if (f < in.size) store_features(to + f, totals[n], half, in.scale);
      }
    }
  }
}

// dk and dv of a row, key head and 128 keys, of which a lane has two. Query heads of the group follow each other.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kGroupedThreads)
    key_gradient_warpgroup_kernel(KeyGradients<bfloat16> to, AttentionOperands<bfloat16> in,
                                  BackwardOperands<bfloat16> back) {
  if constexpr (kHasWarpgroups) {
    constexpr int kFeatures = kWidth / kMmaColumns;
    const int keys = in.slots + in.queries;
    const int key_tiles = ceil_div(keys, kGroupedRows);
    const int line = static_cast<int>(blockIdx.x) / key_tiles;
    const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kGroupedRows - in.slots;
    const bool any_cached = first_key < 0 && (to.dcache_k != nullptr || to.dcache_v != nullptr);
    const bool any_new = first_key + kGroupedRows > 0 && (to.dk != nullptr || to.dv != nullptr);
    const bool with_sums = kRelative && to.sums != nullptr;
    if (!any_cached && !any_new && !with_sums) return;  // the whole block

    const KeyMemory<kWidth, kRelative> memory;
    const bool with_bias = !kRelative && in.bias != nullptr;
    [[maybe_unused]] const int warpgroup = warp_of_block() / kGroupWarps;
    const int first_line = warp_of_block() / kGroupWarps * kGroupRows;
    const int row = line / in.kv_heads;
    const int kv_head = line % in.kv_heads;
    const int group = in.heads / in.kv_heads;
    const int query_tiles = ceil_div(in.queries, kTileRows);
    const float scale = in.scale * kLog2E;
    const VisibleRange* const ranges = back.ranges + static_cast<int64_t>(row) * query_tiles;

    const auto sum_of_key = [&](int head, int key) {
      return (static_cast<int64_t>(row) * in.heads + head) * keys + key;
    };

    // Whatever lies where nobody looks: a key is a line of its own pairs alone.
    const Place any = place_of(in, row, kv_head * group);
    copy_tile(memory.first, keys_of(in, any, in.k, in.cache_k, in.size), first_key, -in.slots, in.queries);
    copy_tile(memory.second, keys_of(in, any, in.v, in.cache_v, in.value_size), first_key, -in.slots, in.queries);

    // Unit n is a head of the group and a tile of queries; the next unit from n on whose queries see these keys.
    const int units = group * query_tiles;
    const int first_tile = first_tile_of(in, first_key);
    const auto next_unit = [&](int n) {
      for (; n < units; ++n) {
        const int tile = n % query_tiles;
        if (tile >= first_tile && sees_keys(ranges[tile], first_key, kGroupedRows)) break;
      }
      return n;
    };
    // Queries of a unit are 191 distances away from the keys, three blocks of terms: the next tile of the same head
    // brings one that is new, other units three.
    [[maybe_unused]] int last_unit = -2;
    [[maybe_unused]] int newest = 0;  // block that belongs to what was fetched last
    [[maybe_unused]] QueriesWithU<kWidth, kTileRows> queries;
    TileStatistics statistics;
    const auto fetch = [&](int unit, int step) {
      const int first_query = unit % query_tiles * kTileRows;
      const Place at = place_of(in, row, kv_head * group + unit / query_tiles);
      if constexpr (kRelative) {
        queries.load(in, at, first_query);
        const int fresh = unit == last_unit + 1 && first_query > 0 ? 1 : 3;
        last_unit = unit;
        newest += fresh;
        for (int n = 0; n < fresh; ++n) {
          memory.terms.fetch(newest - n, in, at, first_query - first_key + (1 - n) * kTermTile);
        }
      } else {
        copy_tile(memory.first_of(step), queries_of(in, at, in.q, in.size), first_query, 0, in.queries);
      }
      copy_tile(memory.second_of(step), queries_of(in, at, back.dout, in.value_size), first_query, 0, in.queries);
      if constexpr (!kRelative) {
        load_biases_of_tile(memory.bias(step), kGroupedRows + kTileRows - 1, in, at,
                            first_query - first_key - (kGroupedRows - 1));
      }
      statistics.load(in, back, at, first_query);
    };

    SumFragment key_totals[kFeatures] = {};
    SumFragment value_totals[kFeatures] = {};
    [[maybe_unused]] float key_sum[2] = {0, 0};  // of the head
    if (with_sums) {
      // Heads none of whose queries see the keys.
      for (int n = static_cast<int>(threadIdx.x); n < group * kGroupedRows; n += kGroupedThreads) {
        const int key = first_key + in.slots + n % kGroupedRows;
        if (key < keys) to.sums[sum_of_key(kv_head * group + n / kGroupedRows, key)] = 0;
      }
    }
    int unit = next_unit(0);
    if (unit < units) {
      fetch(unit, 0);
      statistics.store(memory, 0);
      if constexpr (kRelative) queries.store(memory.first_of(0), in, kv_head * group + unit / query_tiles);
    }
    for (int step = 0; unit < units; ++step) {
      const int origin = unit % query_tiles * kTileRows - first_key;
      [[maybe_unused]] const int head = kv_head * group + unit / query_tiles;
      [[maybe_unused]] const int block = newest;
      publish_copies();
      __syncthreads();  // the tile is there, and nobody reads the one before any more
      const auto fetch_next = [&] {
        const int next = next_unit(unit + 1);
        if (next < units) fetch(next, step + 1);
        return next;
      };
      SumFragment p[kColumns], ds[kColumns];
      begin_products();
      if constexpr (kRelative) {
        // A warp has 16 of the queries here. What belongs to keys comes from the two blocks of the warpgroup's keys.
        SumFragment next[kColumns];
        multiply_lines_later<kWidth>(p, memory.first_of(step), 0, memory.terms.lines(block - 1 - warpgroup));
        multiply_lines_later<kWidth>(next, memory.first_of(step), 0, memory.terms.lines(block - warpgroup));
        end_products();
        multiply_lines_later<kWidth>(ds, memory.second, first_line, memory.second_of(step));
        end_products();
        unit = fetch_next();
        await_products<1>(p, next);
        const auto strip = memory.strip();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          strip.add_biases(p, half, memory.terms.bias(block - 1 - warpgroup));
          strip.add_biases(next, half, memory.terms.bias(block - warpgroup));
          strip.template store<false>(p, half);
          strip.template store<true>(next, half);
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int key = warp_of_block() % kGroupWarps * kMmaRows + row_of_sum(i);
            p[n].x[i] = memory.strips[(n * kMmaColumns + column_of_sum(i)) * strip.kStride + key];
          }
        }
        begin_products();
        multiply_lines_later<kWidth, true>(p, memory.first, first_line, memory.first_of(step));
        end_products();
      } else {
        multiply_lines_later<kWidth>(p, memory.first, first_line, memory.first_of(step));
        end_products();
        multiply_lines_later<kWidth>(ds, memory.second, first_line, memory.second_of(step));
        end_products();
        unit = fetch_next();
      }
      const int* const nearest = memory.nearest(step);
      const int* const farthest = memory.farthest(step);
      // In most tiles all pairs are seen: a lane looks at two queries for its warp.
      bool seen_by_mine = true;
#pragma unroll
      for (int a = lane_of_warp(); a < kTileRows; a += kWarp) {
        seen_by_mine = seen_by_mine && nearest[a] <= origin + a - (kGroupedRows - 1) && farthest[a] >= origin + a;
      }
      const bool whole = __all_sync(kAllLanes, seen_by_mine) != 0;
      if constexpr (kRelative) {
        await_products<0>(p, ds);
      } else {
        await_products<1>(p);
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int a = n * kMmaColumns + column_of_sum(0);
        const TwoSums log_sums = *reinterpret_cast<const TwoSums*>(memory.log_sum(step) + a);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int c = warp_of_block() * kMmaRows + row_of_sum(i);
          float shift = -log_sums.x[i % 2];
          if (with_bias) shift += memory.bias(step)[a + i % 2 - c + kGroupedRows - 1];
          p[n].x[i] = power_of_two(fmaf(p[n].x[i], scale, shift));
        }
      }
      if (!whole) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int a = n * kMmaColumns + column_of_sum(i);
            const int near = nearest[a];
            const int far = farthest[a];
            const int distance = origin + a - warp_of_block() * kMmaRows - row_of_sum(i);
            const bool seen = distance >= near && distance <= far;
            if (!seen) p[n].x[i] = 0;
          }
        }
      }
      LeftFragment probabilities[kColumns / 2];
      pack_weights(probabilities, p);
      if constexpr (!kRelative) await_products<0>(ds);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const TwoSums deltas =
            *reinterpret_cast<const TwoSums*>(memory.delta(step) + n * kMmaColumns + column_of_sum(0));
#pragma unroll
        for (int i = 0; i < 4; ++i) ds[n].x[i] = p[n].x[i] * (ds[n].x[i] - deltas.x[i % 2]);
      }
      LeftFragment gradients[kColumns / 2];
      pack_weights(gradients, ds);
      if constexpr (kRelative) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) key_sum[i / 2] += ds[n].x[i];
        }
        // The last queries of a head.
        const bool last_of_head = unit >= units || kv_head * group + unit / query_tiles != head;
        for (int half = 0; half < 2 && with_sums && last_of_head; ++half) {
          const float sum = sum_of_row(key_sum[half]);
          const int key = first_key + in.slots + warp_of_block() * kMmaRows + row_of_sum(2 * half);
          if (key < keys && lane_of_warp() % 4 == 0) to.sums[sum_of_key(head, key)] = sum;
          key_sum[half] = 0;
        }
        if (unit < units) queries.store(memory.first_of(step + 1), in, kv_head * group + unit / query_tiles);
      }
      if (unit < units) statistics.store(memory, step + 1);
      begin_products();
      multiply_weights_later(value_totals, probabilities, memory.second_of(step));
      multiply_weights_later(key_totals, gradients, memory.first_of(step));
      end_products();
      await_products<0>(value_totals, key_totals, probabilities, gradients);
    }
    publish_copies();

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_key + warp_of_block() * kMmaRows + row_of_sum(2 * half);
      if (position >= in.queries) continue;
      const bool has_keys = (position < 0 ? to.dcache_k : to.dk) != nullptr;
      const bool has_values = (position < 0 ? to.dcache_v : to.dv) != nullptr;
#pragma unroll
      for (int n = 0; n < kFeatures; ++n) {
        const int f = n * kMmaColumns + column_of_sum(0);
        if (has_keys && f < in.size) {
          store_features(line_of_key(to.dk, to.dcache_k, in.size, in, any, position) + f, key_totals[n], half,
                         in.scale);
        }
        if (has_values && f < in.value_size) {
          store_features(line_of_key(to.dv, to.dcache_v, in.value_size, in, any, position) + f, value_totals[n], half,
                         1.0F);
        }
      }
    }
  }
}

}  // namespace

bool backward_suits_warpgroups(const Tensor& dout, const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  if (!suits_warpgroups(dout, in, sizes)) return false;
  size_t needed = 0;
  bool covered = true;
  with_panels(sizes.size, sizes.value_size, in.r.defined(), [&](auto width, auto relative) {
    needed = BackwardMemory<width>::bytes();
    if (!relative) return;
    covered = width == kWidestRelative;
    needed = std::max({QueryTermMemory<kWidestRelative>::bytes(), KeyTermMemory<kWidestRelative>::bytes(),
                       distance_memory_by_warpgroups()});
  });
  return covered && has_shared_memory(needed);
}

void query_gradient_by_warpgroups(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back) {
  with_panels(in.size, in.value_size, in.r != nullptr, [&](auto width, auto relative) {
    if constexpr (!relative || width == kWidestRelative) {
      launch(query_gradient_warpgroup_kernel<width, relative>,
             dim3(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kGroupedRows))), kGroupedThreads,
             QueryMemory<width, relative>::bytes(), dq.data<bfloat16>(), in, back);
    }
  });
}

void key_gradient_by_warpgroups(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                const BackwardOperands<bfloat16>& back) {
  with_panels(in.size, in.value_size, in.r != nullptr, [&](auto width, auto relative) {
    if constexpr (!relative || width == kWidestRelative) {
      launch(key_gradient_warpgroup_kernel<width, relative>,
             dim3(static_cast<unsigned>(in.rows * in.kv_heads * ceil_div(in.slots + in.queries, kGroupedRows))),
             kGroupedThreads, KeyMemory<width, relative>::bytes(), to, in, back);
    }
  });
}

}  // namespace quire::cuda
