#include "kernels/grouped_cross_attention.h"

#include "kernels/cuda/grouped/grouped_mma.h"

namespace quire::cuda {

namespace {

// A block computes one tile of queries and a head (x), and one slice of the values' features (y).
template <typename T, typename S, int kChunks>
__global__ void __launch_bounds__(kThreads)
    grouped_cross_attention_kernel(T* out, Wide<T>* lse, GroupedOperands<T, S> in) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const int head = static_cast<int>(blockIdx.x) % in.heads;
  const ListTile at = in.tile(static_cast<int>(blockIdx.x) / in.heads);
  if (at.count == 0) return;  // the whole block returns
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  GroupedLoads<T, S> loads{in, at, head, head / (in.heads / in.kv_heads), 0};

  Pairs<A> totals[kChunks] = {};
  for (int n = 0; n < in.top_k; ++n) {
    const int64_t entry = in.entry_of(at, n);
    loads.chunk = in.chunk_of(entry);
    if (loads.chunk < 0) continue;
    A top[kEach];
    A sum[kEach] = {};
    Pairs<A> own[kChunks] = {};
    for (int i = 0; i < kEach; ++i) top[i] = in.softmax_one ? A{0} : std::numeric_limits<A>::lowest();
    for (int begin = 0; begin < in.length; begin += kTile) {
      Pairs<A> p;
      multiply_pairs(
          p, memory, in.size, [&](int a, int f) { return loads.query(a, f); },
          [&](int c, int f) { return loads.key(begin + c, f); });
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        A largest = top[i];
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          if (begin + thread_x() + j * kSide < in.length && p[i][j] > largest) largest = p[i][j];
        }
        largest = go_on(top[i], sum[i], own, i, largest);
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const int c = thread_x() + j * kSide;
          const A value = begin + c < in.length ? std::exp(p[i][j] - largest) : A{0};
          sum[i] += value;
          memory.weights[(thread_y() + i * kSide) * kWeightStride + c] = value;
        }
      }
      add_values(own, memory, first_feature, in.value_size, [&](int c, int f) { return loads.value(begin + c, f); });
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int a = thread_y() + i * kSide;
      A all = sum_of_line(sum[i]);
      if (in.softmax_one) all += std::exp(-top[i]);
      // The sum is 0 where all logits are -inf.
      const A factor = all == 0 ? A{0} : in.weight[entry] / all;
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
        for (int f = 0; f < kQuad; ++f) totals[chunk][i][f] += factor * own[chunk][i][f];
      }
      if (blockIdx.y == 0 && thread_x() == 0 && a < at.count) lse[in.lse_of(at, head, a, n)] = top[i] + std::log(all);
    }
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    if (a >= at.count) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.value_size) continue;
      store_quad(in.line_of_query(out, in.value_size, at, head, a), f, in.value_size, in.value_quads, totals[chunk][i],
                 A{1});
    }
  }
}

void grouped_cross_attention(const Tensor& out, const Tensor& lse, const ops::GroupedCrossAttentionInputs& in) {
  const GroupedSizes s(in);
  check_grouped_cross_attention(s, out, lse, in);
  const GroupedScratch scratch(s, in.q.device());
  const bool on_tensor_cores = suits_tensor_cores(out, in, s);
  cut_queries(scratch, in.list, on_tensor_cores ? kListTile : kTile);
  out.zero();  // for queries without a list, which are in no tile
  lse.zero();
  if (on_tensor_cores) {
    return grouped_on_tensor_cores(out, lse, operands_of<bfloat16, bfloat16>(in, s, scratch));
  }
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    GroupedOperands<T, S> operands = operands_of<T, S>(in, s, scratch);
    operands.value_quads = in_quads<T>(s.value_size, {&out});
    with_chunks<T>(s.value_size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * operands.max_tiles * s.heads),
                        static_cast<unsigned>(ceil_div(s.value_size, kChunks * kTile)));
      launch(grouped_cross_attention_kernel<T, S, kChunks>, blocks, kThreads,
             TileMemory<Wide<T>>::bytes(false, false, false), out.data<T>(), lse.data<Wide<T>>(), operands);
    });
  });
}

}  // namespace

void bind_grouped_cross_attention() {
  ops::grouped_cross_attention.bind(DeviceKind::cuda, grouped_cross_attention);
}

}  // namespace quire::cuda
