// Computes the gradients of keys and values on tensor cores (listed_keys.h).
#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/listed/listed_keys.h"

namespace quire::cuda {

namespace {

constexpr int kQueriesAtOnce = 32;
// A thread block loads this many at a time.
constexpr int kQueryTile = 3 * kQueriesAtOnce;

template <int kWidth>
struct KeyGradientMemory {
  SharedLines<kWidth> queries, douts, keys, values;
  float* log_sum;  // [queries], in powers of 2
  float* inner;    // [queries]

  static constexpr size_t bytes() {
    return 2 * (kQueryTile + kMmaTile) * kWidth * sizeof(bfloat16) + 2 * kQueryTile * sizeof(float);
  }

  __device__ KeyGradientMemory() {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kQueryTile * kWidth};
    keys = {douts.begin + kQueryTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    log_sum = reinterpret_cast<float*>(values.begin + kMmaTile * kWidth);
    inner = log_sum + kQueryTile;
  }
};

// Computes dkeys, dvalues or both for 64 keys of a block and a key head. A warp has 16 of the keys and takes 32 queries
// at a time.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    key_gradient_mma_kernel(bfloat16* dkeys, bfloat16* dvalues, ListedInBf16 in, ListGradients<bfloat16> back) {
  const KeyGradientMemory<kWidth> memory;
  const int key_tiles = ceil_div(in.length, kMmaTile);
  const int64_t line = blockIdx.x / key_tiles;
  const int begin = static_cast<int>(blockIdx.x) % key_tiles * kMmaTile;
  const int kv_head = static_cast<int>(line % in.kv_heads);
  const int64_t block = line / in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = begin + first_line < in.length;
  const float scale = in.scale * kLog2E;
  const int64_t first_vector = block * in.length * in.kv_heads + kv_head;
  const int64_t first_one = first_entry(back, block);
  const auto is_of_block = [&](int64_t i) { return i < back.entries && back.of_block[i] == block; };
  const auto copy_keys = [&](const SharedLines<kWidth>& to, const bfloat16* tensor, int width) {
    copy_lines<kMmaTile>(to, width, tensor, [&](int j) {
      return begin + j < in.length ? tensor + (first_vector + int64_t{begin + j} * in.kv_heads) * width : nullptr;
    });
  };

  if (is_of_block(first_one)) {
    copy_keys(memory.keys, in.keys, in.size);
    copy_keys(memory.values, in.values, in.value_size);
  }
  SumFragment key_totals[1][kWidth / kMmaColumns] = {};
  SumFragment value_totals[1][kWidth / kMmaColumns] = {};
  for (int64_t i = first_one; is_of_block(i); ++i) {
    const ListedBlock at = listed_block(in, back, i);
    const float weight = in.weight[at.entry];
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int first = at.first; first < at.end; first += kQueryTile) {
        const int count = first + kQueryTile < at.end ? kQueryTile : at.end - first;
        const int64_t of_tile = (at.row * in.queries + first) * in.heads + head;
        const auto copy_queries = [&](const SharedLines<kWidth>& to, const bfloat16* tensor, int width) {
          copy_lines<kQueryTile>(to, width, tensor, [&](int a) {
            return a < count ? tensor + (of_tile + int64_t{a} * in.heads) * width : nullptr;
          });
        };
        __syncthreads();  // nobody reads the tile before any more
        copy_queries(memory.queries, in.q, in.size);
        copy_queries(memory.douts, back.dout, in.value_size);
        if (threadIdx.x < kQueryTile) {
          const int a = static_cast<int>(threadIdx.x);
          const int64_t of_query = (in.lse_of(of_tile) + (a < count ? a : 0)) * in.chosen + at.n;
          const float log_sum = back.lse[of_query];
          // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
          memory.log_sum[a] = log_sum == -std::numeric_limits<float>::infinity() ? 0.0F : log_sum * kLog2E;
          memory.inner[a] = back.inner[of_query];
        }
        await_copies();
        __syncthreads();
        if (!works) continue;
#pragma unroll 1
        for (int from = 0; from < count; from += kQueriesAtOnce) {
          SumFragment p[1][kQueriesAtOnce / kMmaColumns] = {};
          SumFragment ds[1][kQueriesAtOnce / kMmaColumns] = {};
          multiply_lines(p, memory.keys, first_line, memory.queries, from, in.size);
          multiply_lines(ds, memory.values, first_line, memory.douts, from, in.value_size);
#pragma unroll
          for (int c = 0; c < kQueriesAtOnce / kMmaColumns; ++c) {
#pragma unroll
            for (int x = 0; x < 4; ++x) {
              const int a = from + c * kMmaColumns + column_of_sum(x);
              const bool there = a < count;
              p[0][c].x[x] = there ? weight * exp2f(p[0][c].x[x] * scale - memory.log_sum[a]) : 0.0F;
              ds[0][c].x[x] = there ? p[0][c].x[x] * (ds[0][c].x[x] - memory.inner[a]) : 0.0F;
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
    const int64_t vector = first_vector + int64_t{key} * in.kv_heads;
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (dkeys != nullptr && f < in.size) {
        store_features(dkeys + vector * in.size + f, key_totals[0][n], half, in.scale);
      }
      if (dvalues != nullptr && f < in.value_size) {
        store_features(dvalues + vector * in.value_size + f, value_totals[0][n], half, 1.0F);
      }
    }
  }
}

}  // namespace

void key_gradients_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, const ListedInBf16& in,
                                   const ListGradients<bfloat16>& back) {
  with_width(in, [&](auto width) {
    launch(key_gradient_mma_kernel<width>,
           dim3(static_cast<unsigned>(in.blocks * in.kv_heads * ceil_div(in.length, kMmaTile))), kMmaThreads,
           KeyGradientMemory<width>::bytes(), writable_or_null<bfloat16>(dkeys), writable_or_null<bfloat16>(dvalues),
           in, back);
  });
}

}  // namespace quire::cuda
