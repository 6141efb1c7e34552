// Computes gradients of queries on tensor cores, and decides which calls the three passes take (attention_backward.cu).
#include <algorithm>

#include "kernels/cuda/attention/attention_mma_gradients.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

// Computes dq for one row, head and tile of queries.
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
    for (int item = lane_of_warp(); item < kMmaRows * memory.by_distance.kChunks; item += kWarp) {
      *reinterpret_cast<Words*>(memory.by_distance.begin + item * memory.by_distance.kChunk) = {};
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
        if (kRelative) memory.by_distance.at(row, row + kMmaTile - 1 - c) = bfloat16(ds[0][n].x[i]);
      }
    }
    multiply_weights(totals, ds, memory.keys, 0, in.size);
    if constexpr (kRelative) {
      __syncwarp();
#pragma unroll
      for (int step = 0; step < kStrip / kMmaDepth; ++step) {
        const LeftFragment left = memory.by_distance.left(0, step * kMmaDepth);
        const int first_term = (tile % 2 * kMmaTile + first_line + step * kMmaDepth) % (2 * kMmaTile);
#pragma unroll
        for (int n = 0; n < kWidth / kMmaColumns; n += 2) {
          if (n * kMmaColumns >= in.size) break;
          RightFragment right[2];
          memory.terms.right_transposed(right, first_term, n * kMmaColumns);
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

}  // namespace

bool backward_suits_tensor_cores(const ops::AttentionGradients& gradients, const Tensor& dout,
                                 const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  if (!suits_tensor_cores(dout, in, sizes) ||
      !in_chunks(sizes.size, {&gradients.dq, &gradients.dk, &gradients.dcache_k}) ||
      !in_chunks(sizes.value_size, {&gradients.dv, &gradients.dcache_v})) {
    return false;
  }
  size_t max_bytes = 0;
  with_kind(sizes.size, sizes.value_size, in.r.defined(), [&](auto width, auto relative) {
    const bool dropout = in.dropout > 0;
    max_bytes = std::max(QueryMemory<width, relative>::bytes(dropout), KeyMemory<width, relative>::bytes(dropout));
    if (DistanceGradientScratch::needed(gradients)) {
      max_bytes = std::max(max_bytes, DistanceMemory<width, relative>::bytes(dropout));
    }
  });
  return has_shared_memory(max_bytes);
}

void query_gradient_on_tensor_cores(const Tensor& dq, const AttentionOperands<bfloat16>& in,
                                    const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(query_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kMmaTile))), kMmaThreads,
           QueryMemory<width, relative>::bytes(in.dropout), dq.data<bfloat16>(), in, back);
  });
}

}  // namespace quire::cuda
