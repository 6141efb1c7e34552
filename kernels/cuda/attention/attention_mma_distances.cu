// Computes gradients of the terms by distance on tensor cores.
#include "kernels/cuda/attention/attention_mma_gradients.h"

namespace quire::cuda {

namespace {

// Adds the products by key in a warp's strip to the columns of their distances.
__device__ inline void add_by_distance(SumFragment (&to)[kColumns], const float* strip) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = row_of_sum(i);
      to[n].x[i] += strip[row * kStripStride + row + kMmaTile - 1 - n * kMmaColumns - column_of_sum(i)];
    }
  }
}

// A block sums over the tiles of queries of one group, for one head and tile of distances. The groups share out the
// tiles of queries of all rows.
template <int kWidth, bool kRelative>
__global__ void __launch_bounds__(kMmaThreads)
    distance_gradient_mma_kernel(float* dr_parts,    // [groups, N, H, D] or null
                                 float* sums_parts,  // [groups, H, N]: sums of the gradients of logits at a distance
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
    multiply_strip(memory.strip, memory.queries, first_line, memory.keys, first_line, in.size);
    __syncwarp();
    add_by_distance(ds[0], memory.strip);
    __syncwarp();
    multiply_strip(memory.strip, memory.douts, first_line, memory.values, first_line, in.value_size);
    __syncwarp();
    add_by_distance(dp[0], memory.strip);
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
      multiply_transposed(totals[0], memory.pairs, first_line, memory.positions, in.size);
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

}  // namespace

void distance_gradient_on_tensor_cores(float* r_parts, float* sum_parts, int64_t groups,
                                       const AttentionOperands<bfloat16>& in, const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(distance_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.heads * ceil_div(in.entries, kMmaTile) * groups)), kMmaThreads,
           DistanceMemory<width, relative>::bytes(in.dropout), r_parts, sum_parts, groups, in, back);
  });
}

}  // namespace quire::cuda
