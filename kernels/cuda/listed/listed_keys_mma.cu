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
  float *taken, *share;

  static constexpr size_t bytes() {
    return 2 * (kQueryTile + kMmaTile) * kWidth * sizeof(bfloat16) + 3 * kQueryTile * sizeof(float);
  }

  __device__ KeyGradientMemory() {
    queries = {dynamic_shared<bfloat16>()};
    douts = {queries.begin + kQueryTile * kWidth};
    keys = {douts.begin + kQueryTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    log_sum = reinterpret_cast<float*>(values.begin + kMmaTile * kWidth);
    taken = log_sum + kQueryTile;
    share = taken + kQueryTile;
  }
};

// Computes dkeys, dvalues or both for 64 keys of a block and a key head. A warp has 16 of the keys and takes 32 pairs
// at a time.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads) key_gradient_mma_kernel(bfloat16* dkeys, bfloat16* dvalues, bool own,
                                                                       ListedInBf16 in, ListGradients<bfloat16> back) {
  const KeyGradientMemory<kWidth> memory;
  const int key_tiles = ceil_div(in.length, kMmaTile);
  const int64_t place = blockIdx.x / key_tiles + (own ? in.blocks * in.kv_heads : 0);
  const int begin = static_cast<int>(blockIdx.x) % key_tiles * kMmaTile;
  const int64_t block = place / in.kv_heads;
  const int length = in.length_of(block);
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = begin + first_line < length;
  const float scale = in.scale * kLog2E;
  const int64_t first_vector = in.first_vector(block, static_cast<int>(place % in.kv_heads));
  const int64_t first_one = first_pair(back, place);
  const auto is_of_place = [&](int64_t i) { return i < back.pairs && back.of_place[i] == place; };
  const auto copy_keys = [&](const SharedLines<kWidth>& to, const bfloat16* tensor, int width) {
    copy_lines<kMmaTile>(to, width, tensor, [&](int j) {
      return begin + j < length ? tensor + (first_vector + int64_t{begin + j} * in.kv_heads) * width : nullptr;
    });
  };
  if (!is_of_place(first_one)) return;  // the whole block returns

  copy_keys(memory.keys, own ? in.own_keys : in.keys, in.size);
  copy_keys(memory.values, own ? in.own_values : in.values, in.value_size);
  SumFragment key_totals[1][kWidth / kMmaColumns] = {};
  SumFragment value_totals[1][kWidth / kMmaColumns] = {};
  for (int64_t first = first_one; is_of_place(first); first += kQueryTile) {
    const auto copy_queries = [&](const SharedLines<kWidth>& to, const bfloat16* tensor, int width) {
      copy_lines<kQueryTile>(to, width, tensor, [&](int a) {
        return is_of_place(first + a) ? tensor + back.of_pair[first + a] / in.chosen * int64_t{width} : nullptr;
      });
    };
    __syncthreads();  // nobody reads the tile before any more
    copy_queries(memory.queries, in.q, in.size);
    copy_queries(memory.douts, back.dout, in.value_size);
    if (threadIdx.x < kQueryTile) {
      const int64_t i = first + threadIdx.x;
      const PairTerms<float> terms =
          is_of_place(i) ? terms_of(in, back, back.of_pair[i]) : PairTerms<float>{0.0F, 0.0F, 0.0F};
      memory.log_sum[threadIdx.x] = terms.log_sum * kLog2E;
      memory.taken[threadIdx.x] = terms.taken;
      memory.share[threadIdx.x] = terms.share;
    }
    await_copies();
    __syncthreads();
    if (!works) continue;
#pragma unroll 1
    for (int from = 0; from < kQueryTile && is_of_place(first + from); from += kQueriesAtOnce) {
      SumFragment p[1][kQueriesAtOnce / kMmaColumns] = {};
      SumFragment ds[1][kQueriesAtOnce / kMmaColumns] = {};
      multiply_lines(p, memory.keys, first_line, memory.queries, from, in.size);
      multiply_lines(ds, memory.values, first_line, memory.douts, from, in.value_size);
#pragma unroll
      for (int c = 0; c < kQueriesAtOnce / kMmaColumns; ++c) {
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const int a = from + c * kMmaColumns + column_of_sum(x);
          const bool there = is_of_place(first + a);
          p[0][c].x[x] = there ? memory.share[a] * exp2f(p[0][c].x[x] * scale - memory.log_sum[a]) : 0.0F;
          ds[0][c].x[x] = there ? p[0][c].x[x] * (ds[0][c].x[x] - memory.taken[a]) : 0.0F;
        }
      }
      if (dvalues != nullptr) multiply_weights(value_totals, p, memory.douts, from, in.value_size);
      if (dkeys != nullptr) multiply_weights(key_totals, ds, memory.queries, from, in.size);
    }
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = begin + first_line + row_of_sum(2 * half);
    if (key >= length) continue;
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

void key_gradients_on_tensor_cores(const Tensor& dkeys, const Tensor& dvalues, bool own, const ListedInBf16& in,
                                   const ListGradients<bfloat16>& back) {
  const int64_t blocks = own ? in.all_blocks - in.blocks : in.blocks;
  with_width(in, [&](auto width) {
    launch(key_gradient_mma_kernel<width>,
           dim3(static_cast<unsigned>(blocks * in.kv_heads * ceil_div(in.length, kMmaTile))), kMmaThreads,
           KeyGradientMemory<width>::bytes(), writable_or_null<bfloat16>(dkeys), writable_or_null<bfloat16>(dvalues),
           own, in, back);
  });
}

}  // namespace quire::cuda
