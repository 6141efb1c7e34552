// Computes gradients of keys and values on tensor cores.
#include "kernels/cuda/attention/attention_mma_gradients.h"

namespace quire::cuda {

namespace {

// Computes the gradients for one row, key head and tile of keys. A warp has 16 of the keys and takes 32 queries at a
// time. It goes over the query heads of the group one after another.
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
  if (!any_cached && !any_new && to.sums == nullptr) return;  // the whole block returns

  const KeyMemory<kWidth, kRelative> memory;
  const int first_line = warp_of_block() * kMmaRows;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const float scale = in.scale * kLog2E;

  // Keys and values that no query sees are copied as they are: their pairs get probability and gradient 0.
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

}  // namespace

void key_gradient_on_tensor_cores(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                  const BackwardOperands<bfloat16>& back) {
  with_kind(in, [&](auto width, auto relative) {
    launch(key_gradient_mma_kernel<width, relative>,
           dim3(static_cast<unsigned>(in.rows * in.kv_heads * ceil_div(in.slots + in.queries, kMmaTile))), kMmaThreads,
           KeyMemory<width, relative>::bytes(in.dropout), to, in, back);
  });
}

}  // namespace quire::cuda
