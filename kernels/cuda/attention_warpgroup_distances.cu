// The gradients of terms of Transformer-XL by warpgroups: as distance_gradient_mma_kernel (attention_mma_backward.cu),
// with distances as rows and queries as columns. 128 distances and the 64 queries of a tile meet in 191 keys, three
// blocks of 64, of which the next tile of a row brings one that is new. Products of queries and keys move to their
// distances as products with terms move to their keys.
#include "kernels/cuda/attention_warpgroup_terms.h"

namespace quire::cuda {

namespace {

constexpr int kColumns = kTileRows / kMmaColumns;

// Shared memory of a block: terms of 128 distances, queries and dout of two tiles, keys and values of blocks, and
// strips of both products for each warpgroup.
template <int kWidth>
struct DistanceMemory {
  using Own = SharedPanels<kWidth, kGroupedRows>;
  using Tile = SharedPanels<kWidth, kTileRows>;
  static constexpr int kPlaces = 6;  // of blocks: three are read while three others are on their way
  static constexpr int kStride = kTermTile + 4;
  static constexpr int kStrip = kTileRows * kStride;
  static constexpr int kStatistics = 4 * kTileRows;

  Own terms;
  bfloat16* tiles;
  bfloat16* blocks;
  float* strips;  // of the warpgroup
  float* words;

  static size_t bytes() {
    return Own::kAlignment + (Own::kValues + (4 + 2 * kPlaces) * Tile::kValues) * sizeof(bfloat16) +
           (2 * kGroups * kStrip + 2 * kStatistics) * sizeof(float);
  }

  __device__ DistanceMemory() {
    terms = {first_panel()};
    tiles = terms.begin + Own::kValues;
    blocks = tiles + 4 * Tile::kValues;
    words = reinterpret_cast<float*>(blocks + 2 * kPlaces * Tile::kValues);
    strips = words + 2 * kStatistics + warp_of_block() / kGroupWarps * (2 * kStrip);
  }
  __device__ Tile queries(int step) const { return {tiles + step % 2 * (2 * Tile::kValues)}; }
  __device__ Tile douts(int step) const { return {queries(step).begin + Tile::kValues}; }
  __device__ Tile keys(int block) const { return {blocks + block % kPlaces * (2 * Tile::kValues)}; }
  __device__ Tile values(int block) const { return {keys(block).begin + Tile::kValues}; }
  __device__ float* log_sum(int step) const { return words + step % 2 * kStatistics; }
  __device__ float* delta(int step) const { return log_sum(step) + kTileRows; }
  __device__ int* nearest(int step) const { return reinterpret_cast<int*>(delta(step) + kTileRows); }
  __device__ int* farthest(int step) const { return nearest(step) + kTileRows; }

  // Products of a warp's 16 queries with two neighbouring blocks of 64 go to strip[query][row]: query a and number n of
  // the first block belong to row n - a, and number n of the second one to row n + 64 - a.
  __device__ void move(float* strip, const SumFragment (&first)[kColumns],
                       const SumFragment (&second)[kColumns]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = warp_of_block() % kGroupWarps * kMmaRows + row_of_sum(2 * half);
      const int number = first_term_of_lane() - query;
      float* const to = strip + query * kStride + number;
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int of_product = term_of_product(n, i);
          const bool before = of_product < -number;
          if (before) to[of_product + kTileRows] = second[n].x[2 * half + i];
          if (!before) to[of_product] = first[n].x[2 * half + i];
        }
      }
    }
  }
  // Rows of the warp by queries.
  __device__ void take(SumFragment (&to)[kColumns], const float* strip) const {
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp_of_block() % kGroupWarps * kMmaRows + row_of_sum(i);
        to[n].x[i] = strip[(n * kMmaColumns + column_of_sum(i)) * kStride + row];
      }
    }
  }
};

// Of a head, 128 distances, of which a lane has two, and a group. A group has a share of all tiles of queries of all
// rows. Row n of a block is distance first_distance + 127 - n.
template <int kWidth>
__global__ void __launch_bounds__(kGroupedThreads)
    distance_gradient_warpgroup_kernel(float* dr_parts,    // [groups, N, H, D] or null
                                       float* sums_parts,  // [groups, H, N]: of the gradients of logits at a distance
                                       int groups, AttentionOperands<bfloat16> in, BackwardOperands<bfloat16> back) {
  if constexpr (kHasWarpgroups) {
    constexpr int kFeatures = kWidth / kMmaColumns;
    const DistanceMemory<kWidth> memory;
    const int distance_tiles = ceil_div(in.entries, kGroupedRows);
    const int group = static_cast<int>(blockIdx.x) % groups;
    const int line = static_cast<int>(blockIdx.x) / groups;
    const int first_distance = line % distance_tiles * kGroupedRows;
    const int last_distance = first_distance + kGroupedRows - 1;
    const int head = line / distance_tiles;
    const int query_tiles = ceil_div(in.queries, kTileRows);
    const int warpgroup = warp_of_block() / kGroupWarps;
    const float scale = in.scale * kLog2E;
    const int64_t units = static_cast<int64_t>(in.rows) * query_tiles;
    const int64_t end_unit = units * (group + 1) / groups;

    const Place any = place_of(in, 0, head);
    copy_tile(memory.terms, terms_of(in, any), in.entries - 1 - last_distance, 0, in.entries);
    int distance[2];
    float bias[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      distance[half] = last_distance - warp_of_block() * kMmaRows - row_of_sum(2 * half);
      bias[half] = bias_of(in, any, distance[half]) * scale;
    }

    const auto next_unit = [&](int64_t n) {
      while (n < end_unit && back.ranges[n].far < first_distance) ++n;
      return n;
    };
    int64_t last_unit = -2;
    int newest = 0;  // block of the last keys of what was fetched last
    QueriesWithU<kWidth, kTileRows> queries;
    TileStatistics statistics;
    const auto fetch = [&](int64_t unit, int step) {
      const int first_query = static_cast<int>(unit % query_tiles) * kTileRows;
      const Place at = place_of(in, static_cast<int>(unit / query_tiles), head);
      queries.load(in, at, first_query);
      copy_tile(memory.douts(step), queries_of(in, at, back.dout, in.value_size), first_query, 0, in.queries);
      const int fresh = unit == last_unit + 1 && first_query > 0 ? 1 : 3;
      last_unit = unit;
      newest += fresh;
      for (int n = 0; n < fresh; ++n) {
        const int first_key = first_query - last_distance + (2 - n) * kTileRows;
        copy_tile(memory.keys(newest - n), keys_of(in, at, in.k, in.cache_k, in.size), first_key, -in.slots, in.queries,
                  TermOfLine{});
        copy_tile(memory.values(newest - n), keys_of(in, at, in.v, in.cache_v, in.value_size), first_key, -in.slots,
                  in.queries, TermOfLine{});
      }
      statistics.load(in, back, at, first_query);
    };

    SumFragment totals[kFeatures] = {};
    float sum[2] = {0, 0};
    int64_t unit = next_unit(units * group / groups);
    if (unit < end_unit) {
      fetch(unit, 0);
      queries.store(memory.queries(0), in, head);
      statistics.store(memory, 0);
    }
    for (int step = 0; unit < end_unit; ++step) {
      const int block = newest - 2 + warpgroup;
      publish_copies();
      __syncthreads();  // the tile is there, and nobody reads the one before any more
      SumFragment p[kColumns], ds[kColumns];
      {
        SumFragment next_p[kColumns], next_ds[kColumns];
        LeftFragment of_queries[kWidth / kMmaDepth], of_douts[kWidth / kMmaDepth];
        load_left(of_queries, memory.queries(step));
        load_left(of_douts, memory.douts(step));
        begin_products();
        multiply_left_later(p, of_queries, memory.keys(block));
        multiply_left_later(next_p, of_queries, memory.keys(block + 1));
        end_products();
        multiply_left_later(ds, of_douts, memory.values(block));
        multiply_left_later(next_ds, of_douts, memory.values(block + 1));
        end_products();
        await_products<1>(p, next_p, of_queries);
        unit = next_unit(unit + 1);
        if (unit < end_unit) fetch(unit, step + 1);
        memory.move(memory.strips, p, next_p);
        await_products<0>(ds, next_ds, of_douts);
        memory.move(memory.strips + memory.kStrip, ds, next_ds);
      }
      __syncthreads();
      memory.take(p, memory.strips);
      begin_products();
      multiply_lines_later<kWidth, true>(p, memory.terms, warpgroup * kGroupRows, memory.queries(step));
      end_products();
      memory.take(ds, memory.strips + memory.kStrip);
      const int* const nearest = memory.nearest(step);
      const int* const farthest = memory.farthest(step);
      // In most tiles all pairs are seen: a lane looks at two queries for its warp.
      bool seen_by_mine = true;
#pragma unroll
      for (int a = lane_of_warp(); a < kTileRows; a += kWarp) {
        seen_by_mine = seen_by_mine && nearest[a] <= first_distance && farthest[a] >= last_distance;
      }
      const bool whole = __all_sync(kAllLanes, seen_by_mine) != 0;
      await_products<0>(p);
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        const int a = n * kMmaColumns + column_of_sum(0);
        const TwoSums log_sums = *reinterpret_cast<const TwoSums*>(memory.log_sum(step) + a);
        const TwoSums deltas = *reinterpret_cast<const TwoSums*>(memory.delta(step) + a);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float probability = power_of_two(fmaf(p[n].x[i], scale, bias[i / 2] - log_sums.x[i % 2]));
          ds[n].x[i] = probability * (ds[n].x[i] - deltas.x[i % 2]);
        }
      }
      if (!whole) {
        // What nobody sees may be anything.
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int a = n * kMmaColumns + column_of_sum(i);
            const int near = nearest[a];
            const int far = farthest[a];
            const bool seen = distance[i / 2] >= near && distance[i / 2] <= far;
            ds[n].x[i] = seen ? ds[n].x[i] : 0.0F;
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i / 2] += ds[n].x[i];
      }
      LeftFragment gradients[kColumns / 2];
      pack_weights(gradients, ds);
      if (unit < end_unit) {
        queries.store(memory.queries(step + 1), in, head);
        statistics.store(memory, step + 1);
      }
      begin_products();
      multiply_weights_later(totals, gradients, memory.queries(step));
      end_products();
      await_products<0>(totals, gradients);
    }
    publish_copies();

    float* const part =
        dr_parts == nullptr ? nullptr : dr_parts + static_cast<int64_t>(group) * in.entries * in.heads * in.size;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = sum_of_row(sum[half]);
      if (distance[half] >= in.entries) continue;
      if (lane_of_warp() % 4 == 0) {
        sums_parts[(static_cast<int64_t>(group) * in.heads + head) * in.entries + in.entries - 1 - distance[half]] =
            all;
      }
      if (part == nullptr) continue;
      float* const to = line_of_distance(part, in, any, distance[half]);
#pragma unroll
      for (int n = 0; n < kFeatures; ++n) {
        const int f = n * kMmaColumns + column_of_sum(0);
        if (f >= in.size) continue;
        // Queries are q + u, and the gradient is one of q + v_bias.
        TwoSums both{{totals[n].x[2 * half], totals[n].x[2 * half + 1]}};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int64_t feature = static_cast<int64_t>(head) * in.size + f + i;
          float difference = in.v_bias == nullptr ? 0.0F : in.v_bias[feature];
          if (in.u != nullptr) difference -= in.u[feature];
          both.x[i] = (both.x[i] + all * difference) * in.scale;
        }
        *reinterpret_cast<TwoSums*>(to + f) = both;
      }
    }
  }
}

}  // namespace

size_t distance_memory_by_warpgroups() {
  return DistanceMemory<kWidestRelative>::bytes();
}

void distance_gradient_by_warpgroups(float* r_parts, float* sum_parts, int64_t groups,
                                     const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back) {
  launch(distance_gradient_warpgroup_kernel<kWidestRelative>,
         dim3(static_cast<unsigned>(in.heads * ceil_div(in.entries, kGroupedRows) * groups)), kGroupedThreads,
         DistanceMemory<kWidestRelative>::bytes(), r_parts, sum_parts, static_cast<int>(groups), in, back);
}

}  // namespace quire::cuda
