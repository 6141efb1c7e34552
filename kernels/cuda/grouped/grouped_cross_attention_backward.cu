// Two passes recompute the softmax of each chunk. The first one goes over tiles of queries and computes dq and, for
// each query and entry of its list, the sum D of p dp; dweight is a sum of D. The second one goes over chunks and
// computes dkeys and dvalues from the queries that read a chunk, in the order of rows, lists and heads.
#include <algorithm>

#include "kernels/cuda/grouped/grouped_mma.h"
#include "kernels/grouped_cross_attention.h"

namespace quire::cuda {

namespace {

// Recomputes p, the softmax of keys [begin, begin + 64) of a chunk, zero behind its end and for lines without a query,
// and dp = dout . v.
template <typename T, typename S>
__device__ inline void recompute(Pairs<Wide<T>>& p, Pairs<Wide<T>>& dp, const TileMemory<Wide<T>>& memory,
                                 const GroupedLoads<T, S>& loads, const GroupedBackward<T>& back, int begin, int n) {
  using A = Wide<T>;
  const GroupedOperands<T, S>& in = loads.in;
  multiply_pairs(
      p, memory, in.size, [&](int a, int f) { return loads.query(a, f); },
      [&](int c, int f) { return loads.key(begin + c, f); });
  multiply_pairs(
      dp, memory, in.value_size, [&](int a, int f) { return loads.gradient(back.dout, a, f); },
      [&](int c, int f) { return loads.value(begin + c, f); });
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    A log_sum = a < loads.at.count ? back.lse[in.lse_of(loads.at, loads.head, a, n)] : A{0};
    // When all logits are -inf, a log_sum of 0 makes their exponentials zero.
    if (log_sum == -std::numeric_limits<A>::infinity()) log_sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const bool there = a < loads.at.count && begin + thread_x() + j * kSide < in.length;
      p[i][j] = there ? std::exp(p[i][j] - log_sum) : A{0};
    }
  }
}

template <typename A>
__device__ inline void add_inner(A (&inner)[kEach], const Pairs<A>& p, const Pairs<A>& dp) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    A sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) sum += p[i][j] * dp[i][j];
    inner[i] += sum_of_line(sum);
  }
}

// Computes dq unless it is null, and D, for one tile of queries and a head (x) and one slice of the features (y).
template <typename T, typename S, int kChunks>
__global__ void __launch_bounds__(kThreads)
    grouped_query_gradient_kernel(T* dq, GroupedOperands<T, S> in, GroupedBackward<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const int head = static_cast<int>(blockIdx.x) % in.heads;
  const ListTile at = in.tile(static_cast<int>(blockIdx.x) / in.heads);
  if (at.count == 0) return;  // the whole block returns
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  GroupedLoads<T, S> loads{in, at, head, head / (in.heads / in.kv_heads), 0};
  const bool in_one_tile = in.length <= kTile;

  Pairs<A> totals[kChunks] = {};
  for (int n = 0; n < in.top_k; ++n) {
    const int64_t entry = in.entry_of(at, n);
    loads.chunk = in.chunk_of(entry);
    if (loads.chunk < 0) continue;
    Pairs<A> p;
    Pairs<A> dp;
    A inner[kEach] = {};
    for (int begin = 0; begin < in.length && !in_one_tile; begin += kTile) {
      recompute(p, dp, memory, loads, back, begin, n);
      add_inner(inner, p, dp);
    }
    for (int begin = 0; begin < in.length && (dq != nullptr || in_one_tile); begin += kTile) {
      recompute(p, dp, memory, loads, back, begin, n);
      if (in_one_tile) add_inner(inner, p, dp);
      if (dq == nullptr) continue;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          memory.weights[(thread_y() + i * kSide) * kWeightStride + thread_x() + j * kSide] =
              in.weight[entry] * p[i][j] * (dp[i][j] - inner[i]);
        }
      }
      add_values(totals, memory, first_feature, in.size, [&](int c, int f) { return loads.key(begin + c, f); });
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int a = thread_y() + i * kSide;
      if (blockIdx.y == 0 && thread_x() == 0 && a < at.count) back.delta[in.lse_of(at, head, a, n)] = inner[i];
    }
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    if (a >= at.count || dq == nullptr) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.size) continue;
      store_quad(in.line_of_query(dq, in.size, at, head, a), f, in.size, in.quads, totals[chunk][i], in.scale);
    }
  }
}

// A block sums D over the queries and all heads of one list.
template <typename T, typename S>
__global__ void weight_gradient_kernel(Wide<T>* dweight, GroupedOperands<T, S> in, GroupedBackward<T> back) {
  using A = Wide<T>;
  __shared__ A partial[kBlock / kWarp];
  const int list = static_cast<int>(blockIdx.x);
  const int32_t* const range = in.ranges + static_cast<int64_t>(list) * 2;
  const ListTile at{list / in.lists, list % in.lists, range[0], range[1] > range[0] ? range[1] - range[0] : 0};
  for (int n = 0; n < in.top_k; ++n) {
    const int64_t entry = in.entry_of(at, n);
    A sum = 0;
    if (in.chunk_of(entry) >= 0) {
      for (int i = static_cast<int>(threadIdx.x); i < at.count * in.heads; i += kBlock) {
        sum += back.delta[in.lse_of(at, i / at.count, i % at.count, n)];
      }
    }
    sum = block_sum(sum, partial);
    if (threadIdx.x == 0) dweight[entry] = sum;
  }
}

// Computes dkeys, dvalues or both for 64 keys of a chunk and a key head (x), and one slice of the features (y).
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    grouped_key_gradient_kernel(T* dkeys, T* dvalues, GroupedOperands<T, T> in, GroupedBackward<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, false);
  const int key_tiles = ceil_div(in.length, kTile);
  const int line = static_cast<int>(blockIdx.x) / key_tiles;
  const int begin = static_cast<int>(blockIdx.x) % key_tiles * kTile;
  const int kv_head = line % in.kv_heads;
  const int chunk = line / in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;

  Pairs<A> key_totals[kChunks] = {};
  Pairs<A> value_totals[kChunks] = {};
  for (int64_t i = first_entry(back, chunk); i < back.entries && back.of_chunk[i] == chunk; ++i) {
    const int64_t entry = back.of_entry[i];
    const int64_t list = entry / in.top_k;
    const int n = static_cast<int>(entry % in.top_k);
    const int end = in.ranges[2 * list + 1];
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int first = in.ranges[2 * list]; first < end; first += kTile) {
        const ListTile at{static_cast<int>(list / in.lists), static_cast<int>(list % in.lists), first,
                          first + kTile < end ? kTile : end - first};
        const GroupedLoads<T, T> loads{in, at, head, kv_head, chunk};
        Pairs<A> p;
        Pairs<A> dp;
        recompute(p, dp, memory, loads, back, begin, n);
#pragma unroll
        for (int y = 0; y < kEach; ++y) {
          const int a = thread_y() + y * kSide;
          const A inner = a < at.count ? back.delta[in.lse_of(at, head, a, n)] : A{0};
#pragma unroll
          for (int x = 0; x < kEach; ++x) {
            p[y][x] *= in.weight[entry];
            dp[y][x] = p[y][x] * (dp[y][x] - inner);
          }
        }
        if (dvalues != nullptr) {
          store_transposed(memory.weights, p);
          add_values(value_totals, memory, first_feature, in.value_size,
                     [&](int a, int f) { return loads.gradient(back.dout, a, f); });
        }
        if (dkeys != nullptr) {
          store_transposed(memory.weights, dp);
          add_values(key_totals, memory, first_feature, in.size, [&](int a, int f) { return loads.query(a, f); });
        }
      }
    }
  }

#pragma unroll
  for (int y = 0; y < kEach; ++y) {
    const int key = begin + thread_y() + y * kSide;
    if (key >= in.length) continue;
#pragma unroll
    for (int part = 0; part < kChunks; ++part) {
      const int f = first_feature + part * kTile + thread_x() * kQuad;
      if (dkeys != nullptr && f < in.size) {
        store_quad(in.line_of_key(dkeys, in.size, chunk, kv_head, key), f, in.size, in.stored_quads,
                   key_totals[part][y], A{1});
      }
      if (dvalues != nullptr && f < in.value_size) {
        store_quad(in.line_of_key(dvalues, in.value_size, chunk, kv_head, key), f, in.value_size, in.stored_value_quads,
                   value_totals[part][y], A{1});
      }
    }
  }
}

template <typename T>
T* gradient_or_null(const Tensor& gradient) {
  return gradient.defined() ? gradient.data<T>() : nullptr;
}

void grouped_cross_attention_backward(const ops::GroupedCrossAttentionGradients& g, const Tensor& dout,
                                      const Tensor& lse, const ops::GroupedCrossAttentionInputs& in) {
  const GroupedSizes s(in);
  check_grouped_cross_attention_backward(s, g, dout, lse, in);
  const GroupedScratch scratch(s, in.q.device());
  const GroupedBackwardScratch more(s, g, in);
  const bool on_tensor_cores = backward_suits_tensor_cores(g, dout, in, s);
  cut_queries(scratch, in.list, on_tensor_cores ? kListTile : kTile);
  if (more.entries.defined()) sort_entries(more, in);
  if (g.dq.defined()) g.dq.zero();  // for queries without a list, which are in no tile
  dispatch_stored(in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    using A = Wide<T>;
    GroupedOperands<T, S> operands = operands_of<T, S>(in, s, scratch);
    operands.quads = operands.quads && in_quads<T>(s.size, {&g.dq});
    operands.value_quads = in_quads<T>(s.value_size, {&dout});
    operands.stored_quads = operands.stored_quads && in_quads<S>(s.size, {&g.dkeys});
    operands.stored_value_quads = operands.stored_value_quads && in_quads<S>(s.value_size, {&g.dvalues});
    const bool sorted = more.entries.defined();
    const GroupedBackward<T> back{dout.data<T>(),
                                  lse.data<A>(),
                                  more.delta.data<A>(),
                                  sorted ? more.entries.select(0, 0).template data<int32_t>() : nullptr,
                                  sorted ? more.entries.select(0, 1).template data<int32_t>() : nullptr,
                                  in.chosen.numel()};
    const auto query_gradient = [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const int64_t slices = g.dq.defined() ? ceil_div(s.size, kChunks * kTile) : 1;
      const dim3 blocks(static_cast<unsigned>(s.rows * operands.max_tiles * s.heads), static_cast<unsigned>(slices));
      launch(grouped_query_gradient_kernel<T, S, kChunks>, blocks, kThreads, TileMemory<A>::bytes(false, false, false),
             gradient_or_null<T>(g.dq), operands, back);
    };
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (on_tensor_cores) query_gradient_on_tensor_cores(g.dq, operands, back);
    }
    if (!on_tensor_cores) with_chunks<T>(s.size, query_gradient);
    if (g.dweight.defined()) {
      launch(weight_gradient_kernel<T, S>, dim3(static_cast<unsigned>(s.rows * s.lists)), kBlock, 0,
             g.dweight.data<A>(), operands, back);
    }
    if constexpr (std::is_same_v<S, T>) {
      if (!sorted) return;
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (on_tensor_cores) return key_gradient_on_tensor_cores(g.dkeys, g.dvalues, operands, back);
      }
      const int64_t widest = std::max(s.size, s.value_size);
      with_chunks<T>(widest, [&](auto chunks) {
        constexpr int kChunks = decltype(chunks)::value;
        const dim3 blocks(static_cast<unsigned>(s.chunks * s.kv_heads * ceil_div(s.length, kTile)),
                          static_cast<unsigned>(ceil_div(widest, kChunks * kTile)));
        launch(grouped_key_gradient_kernel<T, kChunks>, blocks, kThreads, TileMemory<A>::bytes(false, false, false),
               gradient_or_null<T>(g.dkeys), gradient_or_null<T>(g.dvalues), operands, back);
      });
    }
  });
}

}  // namespace

void bind_grouped_cross_attention_backward() {
  ops::grouped_cross_attention_backward.bind(DeviceKind::cuda, grouped_cross_attention_backward);
}

}  // namespace quire::cuda
