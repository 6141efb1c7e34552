// The two passes of grouped_cross_attention_backward.cu, over queries and over chunks, on tensor cores.
#include "kernels/cuda/grouped/grouped_mma.h"

namespace quire::cuda {

bool backward_suits_tensor_cores(const ops::GroupedCrossAttentionGradients& g, const Tensor& dout,
                                 const ops::GroupedCrossAttentionInputs& in, const GroupedSizes& s) {
  return suits_tensor_cores(dout, in, s) && s.value_size <= kMmaWidest && in_chunks(s.size, {&g.dq, &g.dkeys}) &&
         in_chunks(s.value_size, {&g.dvalues});
}

namespace {

constexpr int kColumns = kMmaTile / kMmaColumns;

constexpr int kQueriesAtOnce = 32;
// A block that sums over queries takes this many at a time.
constexpr int kTurnTile = 3 * kQueriesAtOnce;

template <int kWidth, int kQueries>
struct GroupedBackwardMemory {
  SharedLines<kWidth> queries, douts, keys, values;
  float* log_sum;  // [queries], in powers of 2
  float* delta;    // [queries]

  static constexpr size_t bytes() {
    return 2 * (kQueries + kMmaTile) * kWidth * sizeof(bfloat16) + 2 * kQueries * sizeof(float);
  }

  __device__ GroupedBackwardMemory() {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kQueries * kWidth};
    keys = {douts.begin + kQueries * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    log_sum = reinterpret_cast<float*>(values.begin + kMmaTile * kWidth);
    delta = log_sum + kQueries;
  }
};

// Computes dq unless it is null, and the sums of p dp, for one tile of queries and a head.
template <int kWidth>
__global__ void __launch_bounds__(kListThreads, kWidth == 64 ? 2 : 1)
    grouped_query_gradient_mma_kernel(bfloat16* dq, GroupedInBf16 in, GroupedBackward<bfloat16> back) {
  const int head = static_cast<int>(blockIdx.x) % in.heads;
  const ListTile at = in.tile(static_cast<int>(blockIdx.x) / in.heads);
  if (at.count == 0) return;  // the whole block returns
  const GroupedBackwardMemory<kWidth, kListTile> memory;
  const int kv_head = head / (in.heads / in.kv_heads);
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = first_line < at.count;
  const float scale = in.scale * kLog2E;
  // Chunks of more than one tile need a first pass for the sums.
  const int first_pass = in.length <= kMmaTile ? 1 : 0;
  const int last_pass = dq != nullptr || first_pass == 1 ? 1 : 0;

  copy_tile<kListThreads, kListTile>(memory.queries, in.q, in.size, in, at, head);
  copy_tile<kListThreads, kListTile>(memory.douts, back.dout, in.value_size, in, at, head);
  SumFragment totals[1][kWidth / kMmaColumns] = {};
  for (int n = next_entry(in, at, 0); n < in.top_k; n = next_entry(in, at, n + 1)) {
    const int64_t entry = in.entry_of(at, n);
    const int chunk = in.chunk_of(entry);
    const float weight = in.weight[entry];
    float log_sum[2];
    float inner[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = first_line + row_of_sum(2 * half);
      log_sum[half] = a < at.count ? exponent_of(back.lse[in.lse_of(at, head, a, n)]) : 0.0F;
    }
    for (int pass = first_pass; pass <= last_pass; ++pass) {
      for (int begin = 0; begin < in.length; begin += kMmaTile) {
        __syncthreads();  // nobody reads keys and values of the tile before any more
        copy_chunk<kListThreads>(memory.keys, in.keys, in.size, 0, in.size, in, chunk, kv_head, begin);
        copy_chunk<kListThreads>(memory.values, in.values, in.value_size, 0, in.value_size, in, chunk, kv_head, begin);
        await_copies();
        __syncthreads();
        if (!works) continue;
        SumFragment ds[1][kColumns] = {};
        SumFragment dp[1][kColumns] = {};
        multiply_lines(ds, memory.queries, first_line, memory.keys, 0, in.size);
        multiply_lines(dp, memory.douts, first_line, memory.values, 0, in.value_size);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const bool is_query = first_line + row_of_sum(2 * half) < at.count;
          float sum = 0;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              const bool there = is_query && begin + c * kMmaColumns + column_of_sum(i) < in.length;
              ds[0][c].x[i] = there ? exp2f(ds[0][c].x[i] * scale - log_sum[half]) : 0.0F;
              sum += ds[0][c].x[i] * dp[0][c].x[i];
            }
          }
          if (pass == first_pass) inner[half] += sum_of_row(sum);
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; ++i) {
              ds[0][c].x[i] *= weight * (dp[0][c].x[i] - inner[half]);
            }
          }
        }
        if (pass == 1 && dq != nullptr) multiply_weights(totals, ds, memory.keys, 0, in.size);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int a = first_line + row_of_sum(2 * half);
      if (lane_of_warp() % 4 == 0 && a < at.count) back.delta[in.lse_of(at, head, a, n)] = inner[half];
    }
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int a = first_line + row_of_sum(2 * half);
    if (a >= at.count || dq == nullptr) continue;
    bfloat16* const to = in.line_of_query(dq, in.size, at, head, a);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (f < in.size) store_features(to + f, totals[0][n], half, in.scale);
    }
  }
}

// Computes dkeys, dvalues or both for 64 keys of a chunk and a key head. A warp has 16 of the keys and takes 32 queries
// at a time.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    grouped_key_gradient_mma_kernel(bfloat16* dkeys, bfloat16* dvalues, GroupedInBf16 in,
                                    GroupedBackward<bfloat16> back) {
  const GroupedBackwardMemory<kWidth, kTurnTile> memory;
  const int key_tiles = ceil_div(in.length, kMmaTile);
  const int line = static_cast<int>(blockIdx.x) / key_tiles;
  const int begin = static_cast<int>(blockIdx.x) % key_tiles * kMmaTile;
  const int kv_head = line % in.kv_heads;
  const int chunk = line / in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = begin + first_line < in.length;
  const float scale = in.scale * kLog2E;
  const int64_t first_one = first_entry(back, chunk);
  const auto is_of_chunk = [&](int64_t i) { return i < back.entries && back.of_chunk[i] == chunk; };

  if (is_of_chunk(first_one)) {
    copy_chunk<kMmaThreads>(memory.keys, in.keys, in.size, 0, in.size, in, chunk, kv_head, begin);
    copy_chunk<kMmaThreads>(memory.values, in.values, in.value_size, 0, in.value_size, in, chunk, kv_head, begin);
  }
  SumFragment key_totals[1][kWidth / kMmaColumns] = {};
  SumFragment value_totals[1][kWidth / kMmaColumns] = {};
  for (int64_t i = first_one; is_of_chunk(i); ++i) {
    const int64_t entry = back.of_entry[i];
    const int64_t list = entry / in.top_k;
    const int n = static_cast<int>(entry % in.top_k);
    const int end = in.ranges[2 * list + 1];
    const float weight = in.weight[entry];
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int first = in.ranges[2 * list]; first < end; first += kTurnTile) {
        const ListTile at{static_cast<int>(list / in.lists), static_cast<int>(list % in.lists), first,
                          first + kTurnTile < end ? kTurnTile : end - first};
        __syncthreads();  // nobody reads the tile before any more
        copy_tile<kMmaThreads, kTurnTile>(memory.queries, in.q, in.size, in, at, head);
        copy_tile<kMmaThreads, kTurnTile>(memory.douts, back.dout, in.value_size, in, at, head);
        if (threadIdx.x < kTurnTile) {
          const int a = static_cast<int>(threadIdx.x);
          const int64_t of_query = in.lse_of(at, head, a, n);
          memory.log_sum[a] = a < at.count ? exponent_of(back.lse[of_query]) : 0.0F;
          memory.delta[a] = a < at.count ? back.delta[of_query] : 0.0F;
        }
        await_copies();
        __syncthreads();
        if (!works) continue;
#pragma unroll 1
        for (int from = 0; from < at.count; from += kQueriesAtOnce) {
          SumFragment p[1][kQueriesAtOnce / kMmaColumns] = {};
          SumFragment ds[1][kQueriesAtOnce / kMmaColumns] = {};
          multiply_lines(p, memory.keys, first_line, memory.queries, from, in.size);
          multiply_lines(ds, memory.values, first_line, memory.douts, from, in.value_size);
#pragma unroll
          for (int c = 0; c < kQueriesAtOnce / kMmaColumns; ++c) {
#pragma unroll
            for (int x = 0; x < 4; ++x) {
              const int a = from + c * kMmaColumns + column_of_sum(x);
              const bool there = a < at.count;
              p[0][c].x[x] = there ? weight * exp2f(p[0][c].x[x] * scale - memory.log_sum[a]) : 0.0F;
              ds[0][c].x[x] = there ? p[0][c].x[x] * (ds[0][c].x[x] - memory.delta[a]) : 0.0F;
            }
          }
          if (dvalues != nullptr) multiply_weights(value_totals, p, memory.douts, from, in.value_size);
          if (dkeys != nullptr) multiply_weights(key_totals, ds, memory.queries, from, in.size);
        }
      }
    }
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = begin + first_line + row_of_sum(2 * half);
    if (key >= in.length) continue;
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (dkeys != nullptr && f < in.size) {
        store_features(in.line_of_key(dkeys, in.size, chunk, kv_head, key) + f, key_totals[0][n], half, in.scale);
      }
      if (dvalues != nullptr && f < in.value_size) {
        store_features(in.line_of_key(dvalues, in.value_size, chunk, kv_head, key) + f, value_totals[0][n], half, 1.0F);
      }
    }
  }
}

bfloat16* data_of(const Tensor& gradient) {
  return gradient.defined() ? gradient.data<bfloat16>() : nullptr;
}

// Calls function(width) with an integral constant.
template <typename Function>
void with_width(const GroupedInBf16& in, Function&& function) {
  if (in.size <= 64 && in.value_size <= 64) return function(std::integral_constant<int, 64>{});
  function(std::integral_constant<int, kMmaWidest>{});
}

}  // namespace

void query_gradient_on_tensor_cores(const Tensor& dq, const GroupedInBf16& in, const GroupedBackward<bfloat16>& back) {
  with_width(in, [&](auto width) {
    launch(grouped_query_gradient_mma_kernel<width>, dim3(static_cast<unsigned>(in.rows * in.max_tiles * in.heads)),
           kListThreads, GroupedBackwardMemory<width, kListTile>::bytes(), data_of(dq), in, back);
  });
}

void key_gradient_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, const GroupedInBf16& in,
                                  const GroupedBackward<bfloat16>& back) {
  with_width(in, [&](auto width) {
    launch(grouped_key_gradient_mma_kernel<width>,
           dim3(static_cast<unsigned>(in.chunks * in.kv_heads * ceil_div(in.length, kMmaTile))), kMmaThreads,
           GroupedBackwardMemory<width, kTurnTile>::bytes(), data_of(dkeys), data_of(dvalues), in, back);
  });
}

}  // namespace quire::cuda
