// Bucketed search on tensor cores.
#include "kernels/cuda/knn/knn_best.h"
#include "kernels/cuda/knn/knn_mma.h"

namespace quire::cuda {

namespace {

// Finds the best entry of each of K buckets. At most eight neighbouring keys are compared at a time; they fall into
// different buckets, so each bucket has one writer.
template <int kWidth, int kTiles, typename S>
__global__ void __launch_bounds__(kMmaThreads, 4 - kTiles) search_buckets_mma_kernel(MmaSearch<S> in, int stride) {
  constexpr int kQueries = kTiles * kMmaTile;
  constexpr int kValues = kMmaTile * kWidth * (MmaSearch<S>::kConverted ? 3 : 4) / 2;
  const auto at = SearchPlace<S>::template of<kQueries>(in);
  bfloat16* const room = dynamic_shared<bfloat16>();
  int* const buckets = reinterpret_cast<int*>(room + kValues);  // buckets of two tiles; -1: no key
  int* const numbers = buckets + 2 * kMmaTile;                  // their entries
  float* const factors = reinterpret_cast<float*>(numbers + 2 * kMmaTile);
  float* const best = factors + kMmaTile;
  auto* const entries = reinterpret_cast<int32_t*>(best + kQueries * stride);

  LeftFragment queries[kTiles][kWidth / kMmaDepth];
  load_query_fragments<kWidth>(queries, room, in, at);
  KeyTiles<kWidth, S> tiles{room, factors, 0.0F, 0};
  const auto fetch = [&](int first) {
    const int to = tiles.number % 2 * kMmaTile + static_cast<int>(threadIdx.x);
    tiles.fetch(in, at, first);
    const int position = first + static_cast<int>(threadIdx.x);
    if (threadIdx.x >= kMmaTile) return;
    const bool there = at.has(position);
    numbers[to] = there ? at.entry_of(position) : -1;
    buckets[to] = there ? numbers[to] % in.top_k : -1;
  };
  if (at.begin < at.end) fetch(at.begin);
  for (int item = static_cast<int>(threadIdx.x); item < kQueries * in.top_k; item += kMmaThreads) {
    const int query = item / in.top_k;
    const int k = item % in.top_k;
    const bool carried = in.is_next && at.has_query(query);
    const int64_t from = carried ? at.line_of_result(in, query) * in.top_k + k : 0;
    entries[query * stride + k] = carried ? in.index[from] : -1;
    const bool there = entries[query * stride + k] >= 0;
    best[query * stride + k] = there ? in.score[from] : std::numeric_limits<float>::quiet_NaN();
  }
  __syncthreads();

  for (int first = at.begin; first < at.end; first += kMmaTile) {
    tiles.take();
    const SharedLines<kWidth> keys = tiles.lines();
    const int table = (tiles.number - 1) % 2 * kMmaTile;
    if (first + kMmaTile < at.end) fetch(first + kMmaTile);
    // Where entries begin again at the oldest one, neighbours may share a bucket.
    const bool wraps = at.wrap > first && at.wrap < first + kMmaTile;
#pragma unroll 1
    for (int key = 0; key < kMmaTile && first + key < at.end; key += kSearchKeys) {
      SumFragment scores[kTiles][kSearchColumns] = {};
      score_keys(scores, queries, tiles, keys, key, in.size);
      for (int pass = 0; pass < (wraps ? 2 : 1); ++pass) {
#pragma unroll
        for (int n = 0; n < kSearchColumns; ++n) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int column = key + n * kMmaColumns + column_of_sum(i);
            const int bucket = buckets[table + column];
            const int32_t entry = numbers[table + column];
            if (bucket < 0 || (wraps && (first + column >= at.wrap) != (pass == 1))) continue;
#pragma unroll
            for (int g = 0; g < 2 * kTiles; ++g) {
              const int query = g / 2 * kMmaTile + warp_of_block() * kMmaRows + row_of_sum(g % 2 * 2);
              const int to = query * stride + bucket;
              const float score = scores[g / 2][n].x[g % 2 * 2 + i];
              if (score < best[to]) continue;
              if (entries[to] >= 0 && !comes_before(score, entry, best[to], entries[to])) continue;
              best[to] = score;
              entries[to] = entry;
            }
          }
          __syncwarp();
        }
      }
    }
  }

  __syncthreads();
  for (int item = static_cast<int>(threadIdx.x); item < kQueries * in.top_k; item += kMmaThreads) {
    const int query = item / in.top_k;
    const int k = item % in.top_k;
    if (!at.has_query(query)) continue;
    const int64_t to = at.line_of_result(in, query) * in.top_k + k;
    const int32_t entry = entries[query * stride + k];
    in.index[to] = entry;
    in.score[to] = entry < 0 ? 0.0F : best[query * stride + k];
  }
}

}  // namespace

template <typename S>
void search_buckets(const MmaSearch<S>& in, const SearchScratch& scratch) {
  with_sizes(in, scratch, [&](auto width, auto tiles) {
    constexpr int kWidth = decltype(width)::value;
    constexpr int kTiles = decltype(tiles)::value;
    const int64_t stride = SearchScratch::bucket_stride(in.top_k);
    launch(search_buckets_mma_kernel<kWidth, kTiles, S>, dim3(static_cast<unsigned>(scratch.blocks)), kMmaThreads,
           bytes_of_search<S>(kWidth, kTiles, stride, true), in, static_cast<int>(stride));
  });
}
template void search_buckets(const MmaSearch<bfloat16>& in, const SearchScratch& scratch);
template void search_buckets(const MmaSearch<int8_t>& in, const SearchScratch& scratch);
template void search_buckets(const MmaSearch<float8>& in, const SearchScratch& scratch);

}  // namespace quire::cuda
