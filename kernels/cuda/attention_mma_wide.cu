// Gradients of attention in bf16 on tensor cores where values have more than 128 features: what goes over all of these
// features. Products of dout and values are made once and kept in f32, where the passes for queries, keys and distances
// read them; the pass for keys leaves probabilities in bf16, which the gradients of values are sums by. For one head of
// 2048 features and some 1000 keys both take less than the values themselves in f32, and recomputing them in every pass
// would double the arithmetic.
#include "kernels/cuda/attention_mma.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

bool backward_suits_tensor_cores(const ops::AttentionInputs& in, const AttentionSizes& sizes) {
  if (!suits_tensor_cores(in, sizes) || !has_shared_memory(backward_shared_memory(in, sizes))) return false;
  return sizes.value_size <= kMmaWidest || WideValueScratch::needed(sizes, in.q.dtype());
}

namespace {

// Of a row, head, tile of queries and 128 keys.
__global__ void __launch_bounds__(kMmaThreads)
    value_product_mma_kernel(WideValues wide, AttentionOperands<bfloat16> in, BackwardOperands<bfloat16> back) {
  constexpr int kKeys = DeepProduct::kColumns;
  const int key_tiles = ceil_div(wide.keys, kKeys);
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kKeys - in.slots;
  const int tile = static_cast<int>(blockIdx.x) / key_tiles % query_tiles;
  const int line = static_cast<int>(blockIdx.x) / key_tiles / query_tiles;
  const Place at = place_of(in, line / in.heads, line % in.heads);
  const VisibleRange range = back.ranges[at.row * query_tiles + tile];
  if (!sees_keys(range, first_key, kKeys)) return;  // the whole block
  const DeepProduct product{dynamic_shared<bfloat16>(), in.value_size};
  const int first_query = tile * kMmaTile;
  const auto fetch = [&](int step) {
    const int first = step * DeepProduct::kDeep;
    copy_lines(product.lines(step), 0, kMmaTile, product.features_of(step), in.q, [&](int a) {
      const int query = first_query + a;
      return query < in.queries ? line_of_query(back.dout, in.value_size, in, at, query) + first : nullptr;
    });
    copy_lines(product.columns(step), 0, kKeys, product.features_of(step), in.q, [&](int c) {
      const int position = first_key + c;
      const bool seen = position >= range.low && position < range.high;
      return seen ? line_of_key(in.v, in.cache_v, in.value_size, in, at, position) + first : nullptr;
    });
  };
  fetch(0);
  DeepProduct::Sums sums = {};
  product.add(sums, fetch);
#pragma unroll
  for (int t = 0; t < DeepProduct::kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + DeepProduct::first_line() + t * kMmaRows + row_of_sum(2 * half);
      const int key = first_key + in.slots + DeepProduct::first_column();
      if (query >= in.queries || key >= wide.keys) continue;
      auto* const to = const_cast<float*>(wide.product(in, at, query, key + column_of_sum(0)));
#pragma unroll
      for (int n = 0; n < kMmaTile / kMmaColumns; ++n) {
        *reinterpret_cast<TwoSums*>(to + n * kMmaColumns) = {{sums[t][n].x[2 * half], sums[t][n].x[2 * half + 1]}};
      }
    }
  }
}

// Of a row, key head and tile of keys (x), and a slice of the features of values (y). Probabilities and dout of a tile
// of queries are on their way while those of another are multiplied.
__global__ void __launch_bounds__(kMmaThreads)
    value_gradient_mma_kernel(KeyGradients<bfloat16> to, WideValues wide, AttentionOperands<bfloat16> in,
                              BackwardOperands<bfloat16> back) {
  constexpr int kOfWarp = kWidestSlice / kMmaWarps;  // features
  constexpr int kPlace = kMmaTile * (kMmaTile + kWidestSlice);
  const int key_tiles = wide.keys / kMmaTile;
  const int line = static_cast<int>(blockIdx.x) / key_tiles;
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kMmaTile - in.slots;
  const bool any_cached = first_key < 0 && to.dcache_v != nullptr;
  const bool any_new = first_key + kMmaTile > 0 && to.dv != nullptr;
  if (!any_cached && !any_new) return;  // the whole block
  const int first_slice = static_cast<int>(blockIdx.y) * kWidestSlice;
  const int slice = in.value_size - first_slice < kWidestSlice ? in.value_size - first_slice : kWidestSlice;
  const int first_feature = warp_of_block() * kOfWarp;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const auto weights = [](int place) { return SharedLines<kMmaTile>{dynamic_shared<bfloat16>() + place * kPlace}; };
  const auto douts = [&](int place) { return SharedLines<kWidestSlice>{weights(place).begin + kMmaTile * kMmaTile}; };
  // Tiles of queries are numbered head after head. The next one from `number` on that sees these keys.
  const int end = group * query_tiles;
  const auto next_from = [&](int number) {
    for (; number < end; ++number) {
      const int tile = number % query_tiles;
      if (tile < first_tile_of(in, first_key)) continue;
      if (sees_keys(back.ranges[row * query_tiles + tile], first_key, kMmaTile)) break;
    }
    return number;
  };
  const auto fetch = [&](int number, int place) {
    if (number >= end) return;
    const Place at = place_of(in, row, kv_head * group + number / query_tiles);
    const int first_query = number % query_tiles * kMmaTile;
    copy_lines(weights(place), 0, kMmaTile, kMmaTile, in.q,
               [&](int c) { return wide.probability(in, at, first_key + in.slots + c, first_query); });
    copy_lines(douts(place), 0, kMmaTile, slice, in.q, [&](int a) {
      const int query = first_query + a;
      return query < in.queries ? line_of_query(back.dout, in.value_size, in, at, query) + first_slice : nullptr;
    });
  };

  SumFragment totals[kMmaTile / kMmaRows][kOfWarp / kMmaColumns] = {};
  int place = 0;
  int number = next_from(0);
  fetch(number, place);
  while (number < end) {
    await_copies();
    __syncthreads();  // this tile is there, and nobody reads the one before any more
    number = next_from(number + 1);
    fetch(number, 1 - place);
    multiply_shared(totals, weights(place), 0, douts(place), first_feature, slice);
    place = 1 - place;
  }

  const Place any = place_of(in, row, kv_head * group);
#pragma unroll
  for (int t = 0; t < kMmaTile / kMmaRows; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = first_key + t * kMmaRows + row_of_sum(2 * half);
      if (position >= in.queries || (position < 0 ? to.dcache_v : to.dv) == nullptr) continue;
      bfloat16* const line_to = line_of_key(to.dv, to.dcache_v, in.value_size, in, any, position) + first_slice;
#pragma unroll
      for (int n = 0; n < kOfWarp / kMmaColumns; ++n) {
        const int f = first_feature + n * kMmaColumns + column_of_sum(0);
        if (f >= slice) break;
        *reinterpret_cast<uint32_t*>(line_to + f) = packed(totals[t][n].x[2 * half], totals[t][n].x[2 * half + 1]);
      }
    }
  }
}

}  // namespace

void products_on_tensor_cores(const WideValues& wide, const AttentionOperands<bfloat16>& in,
                              const BackwardOperands<bfloat16>& back) {
  const int64_t tiles = static_cast<int64_t>(in.rows) * in.heads * ceil_div(in.queries, kMmaTile);
  launch(value_product_mma_kernel, dim3(static_cast<unsigned>(tiles * ceil_div(wide.keys, DeepProduct::kColumns))),
         kMmaThreads, DeepProduct::kValues * sizeof(bfloat16), wide, in, back);
}

void value_gradient_on_tensor_cores(const KeyGradients<bfloat16>& to, const AttentionOperands<bfloat16>& in,
                                    const BackwardOperands<bfloat16>& back, const WideValues& wide) {
  const dim3 blocks(static_cast<unsigned>(in.rows * in.kv_heads * (wide.keys / kMmaTile)),
                    static_cast<unsigned>(ceil_div(in.value_size, kWidestSlice)));
  launch(value_gradient_mma_kernel, blocks, kMmaThreads, 2 * kMmaTile * (kMmaTile + kWidestSlice) * sizeof(bfloat16),
         to, wide, in, back);
}

}  // namespace quire::cuda
