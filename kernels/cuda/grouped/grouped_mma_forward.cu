#include "kernels/cuda/grouped/grouped_mma.h"

namespace quire::cuda {

bool suits_tensor_cores(const Tensor& out, const ops::GroupedCrossAttentionInputs& in, const GroupedSizes& s) {
  if (in.q.dtype() != DType::bf16 || in.keys.dtype() != DType::bf16 || s.size > kMmaWidest) return false;
  return in_chunks(s.size, {&in.q, &in.keys}) && in_chunks(s.value_size, {&in.values, &out});
}

namespace {

template <int kWidth>
struct GroupedMemory {
  SharedLines<kWidth> queries, keys, values;

  static constexpr size_t bytes() { return (kListTile + 2 * kMmaTile) * kWidth * sizeof(bfloat16); }

  __device__ GroupedMemory() {
    queries = {dynamic_shared<bfloat16>()};
    keys = {queries.begin + kListTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
  }
};

// A block computes one tile of queries and a head (x), and one slice of the values' features (y). Keys of the next tile
// are copied while values of this one are multiplied.
template <int kWidth>
__global__ void __launch_bounds__(kListThreads, kWidth == 64 ? 2 : 1)
    grouped_mma_kernel(bfloat16* out, float* lse, GroupedInBf16 in) {
  constexpr int kColumns = kMmaTile / kMmaColumns;
  constexpr int kFeatures = kWidth / kMmaColumns;
  const int head = static_cast<int>(blockIdx.x) % in.heads;
  const ListTile at = in.tile(static_cast<int>(blockIdx.x) / in.heads);
  if (at.count == 0) return;  // the whole block returns
  const GroupedMemory<kWidth> memory;
  const int kv_head = head / (in.heads / in.kv_heads);
  const int first_feature = static_cast<int>(blockIdx.y) * kWidth;
  const int value_size = in.value_size - first_feature < kWidth ? in.value_size - first_feature : kWidth;
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = first_line < at.count;
  const float scale = in.scale * kLog2E;

  const auto fetch_keys = [&](int entry, int begin) {
    const int chunk = in.chunk_of(in.entry_of(at, entry));
    copy_chunk<kListThreads>(memory.keys, in.keys, in.size, 0, in.size, in, chunk, kv_head, begin);
  };

  SumFragment totals[kFeatures] = {};
  int n = next_entry(in, at, 0);
  copy_tile<kListThreads, kListTile>(memory.queries, in.q, in.size, in, at, head);
  if (n < in.top_k) fetch_keys(n, 0);
  while (n < in.top_k) {
    const int64_t entry = in.entry_of(at, n);
    const int chunk = in.chunk_of(entry);
    const int next = next_entry(in, at, n + 1);
    // They belong to a lane's rows group and group + 8.
    float top[2];
    float sum[2] = {0, 0};
    SumFragment own[1][kFeatures] = {};
    for (float& of_row : top) of_row = in.softmax_one ? 0 : std::numeric_limits<float>::lowest();
    for (int begin = 0; begin < in.length; begin += kMmaTile) {
      await_copies();
      __syncthreads();  // keys are there, and nobody reads values of the tile before any more
      copy_chunk<kListThreads>(memory.values, in.values, in.value_size, first_feature, value_size, in, chunk, kv_head,
                               begin);
      SumFragment logits[1][kColumns] = {};
      if (works) {
        multiply_lines(logits, memory.queries, first_line, memory.keys, 0, in.size);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const bool there = begin + c * kMmaColumns + column_of_sum(i) < in.length;
            logits[0][c].x[i] = there ? logits[0][c].x[i] * scale : -std::numeric_limits<float>::infinity();
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) go_on(top[half], sum[half], logits[0], own[0], half);
      }
      await_copies();
      __syncthreads();  // values are there, and nobody reads keys any more
      if (begin + kMmaTile < in.length) {
        fetch_keys(n, begin + kMmaTile);
      } else if (next < in.top_k) {
        fetch_keys(next, 0);
      }
      if (works) multiply_weights(own, logits, memory.values, 0, value_size);
    }
    if (works) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float all = sum_of_row(sum[half]);
        if (in.softmax_one) all += exp2f(-top[half]);
        // The sum is 0 where all logits are -inf.
        const float factor = all == 0 ? 0.0F : in.weight[entry] / all;
#pragma unroll
        for (int f = 0; f < kFeatures; ++f) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) totals[f].x[i] += factor * own[0][f].x[i];
        }
        const int a = first_line + row_of_sum(2 * half);
        if (blockIdx.y == 0 && lane_of_warp() % 4 == 0 && a < at.count) {
          lse[in.lse_of(at, head, a, n)] = (top[half] + log2f(all)) * kLn2;
        }
      }
    }
    n = next;
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int a = first_line + row_of_sum(2 * half);
    if (a >= at.count) continue;
    bfloat16* const to = in.line_of_query(out, in.value_size, at, head, a) + first_feature;
#pragma unroll
    for (int n_feature = 0; n_feature < kFeatures; ++n_feature) {
      const int f = n_feature * kMmaColumns + column_of_sum(0);
      if (f < value_size) store_features(to + f, totals[n_feature], half, 1.0F);
    }
  }
}

template <int kWidth>
void launch_forward(const Tensor& out, const Tensor& lse, const GroupedInBf16& in) {
  const dim3 blocks(static_cast<unsigned>(in.rows * in.max_tiles * in.heads),
                    static_cast<unsigned>(ceil_div(in.value_size, kWidth)));
  launch(grouped_mma_kernel<kWidth>, blocks, kListThreads, GroupedMemory<kWidth>::bytes(), out.data<bfloat16>(),
         lse.data<float>(), in);
}

}  // namespace

void grouped_on_tensor_cores(const Tensor& out, const Tensor& lse, const GroupedInBf16& in) {
  if (in.size <= 64 && in.value_size <= 64) return launch_forward<64>(out, lse, in);
  launch_forward<kMmaWidest>(out, lse, in);
}

}  // namespace quire::cuda
