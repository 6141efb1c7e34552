// Three passes recompute the tiles, one for each side that is summed over the other: queries (dq), keys (dk, dv) and
// distances (dr, dbias). Every sum has one writer and an order that the shapes alone decide. Gradients that all rows
// and queries share are summed in parts, which are added in order.
#include <algorithm>

#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/attention/attention_parts.h"
#include "kernels/cuda/attention/attention_recompute.h"
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace quire::cuda {

namespace {

template <typename T>
__global__ void ranges_kernel(VisibleRange* ranges, AttentionOperands<T> in) {
  __shared__ int nearest[kTile];
  __shared__ int farthest[kTile];
  const int tiles = ceil_div(in.queries, kTile);
  const int first_query = static_cast<int>(blockIdx.x) % tiles * kTile;
  load_distances(nearest, farthest, in, static_cast<int>(blockIdx.x) / tiles, first_query);
  __syncthreads();
  const VisibleRange range = visible_range(nearest, farthest, in.slots, first_query);
  if (threadIdx.x == 0) ranges[blockIdx.x] = range;
}

// Computes dq for one row, head and tile of queries (x) and one slice of the features (y).
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(T* dq, AttentionOperands<T> in, BackwardOperands<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, in.r != nullptr);
  const int tiles = ceil_div(in.queries, kTile);
  const int line = static_cast<int>(blockIdx.x) / tiles;
  const int query_tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles;
  const int first_query = query_tile * kTile;
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const Place at = place_of(in, line / in.heads, line % in.heads);
  const VisibleRange range = back.ranges[at.row * tiles + query_tile];

  Pairs<A> totals[kChunks] = {};
  for (int tile = (range.low + in.slots) / kTile; tile * kTile - in.slots < range.high; ++tile) {
    const int first_key = tile * kTile - in.slots;
    const int origin = first_query - first_key;
    Pairs<A> p;
    Pairs<A> ds;
    recompute<false>(p, ds, memory, in, back, at, range, first_query, origin);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        memory.weights[(thread_y() + i * kSide) * kWeightStride + thread_x() + j * kSide] = ds[i][j];
      }
    }
    add_values(totals, memory, first_feature, in.size,
               [&](int b, int f) { return load_key(in, at, range, first_key + b, f); });
    if (in.r == nullptr) continue;
    // The tile has 127 distances, which are taken in two halves. Pair (a, b) belongs to one of them, at column a - b -
    // 1 modulo 64.
    for (int half = 0; half < 2; ++half) {
      const int first_distance = origin - (kTile - 1) + half * kTile;
      if (first_distance + kTile <= 0 || first_distance > range.far || first_distance >= in.entries) continue;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int a = thread_y() + i * kSide;
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const int b = thread_x() + j * kSide;
          const int column = (a - b + kTile - 1) % kTile;
          memory.weights[a * kWeightStride + column] = (b < a) == (half == 1) ? ds[i][j] : A{0};
        }
      }
      add_values(totals, memory, first_feature, in.size,
                 [&](int c, int f) { return load_term(in, at, first_distance + c, f); });
    }
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int query = first_query + thread_y() + i * kSide;
    if (query >= in.queries) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.size) continue;
      store_quad(line_of_query(dq, in.size, in, at, query), f, in.size, in.quads, totals[chunk][i], in.scale);
    }
  }
}

// Computes the gradients of keys and values for one row, key head and tile of keys (x) and one slice of the features
// (y). It goes over the query heads of the group one after another.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(KeyGradients<T> to, AttentionOperands<T> in, BackwardOperands<T> back) {
  using A = Wide<T>;
  const int keys = in.slots + in.queries;
  const int key_tiles = ceil_div(keys, kTile);
  const int line = static_cast<int>(blockIdx.x) / key_tiles;
  const int first_key = static_cast<int>(blockIdx.x) % key_tiles * kTile - in.slots;
  const bool any_cached = first_key < 0 && (to.dcache_k != nullptr || to.dcache_v != nullptr);
  const bool any_new = first_key + kTile > 0 && (to.dk != nullptr || to.dv != nullptr);
  if (!any_cached && !any_new && to.sums == nullptr) return;  // the whole block returns

  const TileMemory<A> memory(false, in.r != nullptr);
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const int group = in.heads / in.kv_heads;
  const int query_tiles = ceil_div(in.queries, kTile);

  Pairs<A> key_totals[kChunks] = {};
  Pairs<A> value_totals[kChunks] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const Place at = place_of(in, row, head);
    A key_sum = 0;
    for (int tile = in.last_visible == nullptr && first_key > 0 ? first_key / kTile : 0; tile < query_tiles; ++tile) {
      const VisibleRange range = back.ranges[row * query_tiles + tile];
      if (range.low >= first_key + kTile || range.high <= first_key) continue;
      const int first_query = tile * kTile;
      Pairs<A> p;
      Pairs<A> ds;
      recompute<false>(p, ds, memory, in, back, at, range, first_query, first_query - first_key);
      store_transposed(memory.weights, p);
      add_values(value_totals, memory, first_feature, in.value_size, [&](int a, int f) {
        const bool there = first_query + a < in.queries;
        const T* const from = there ? line_of_query(back.dout, in.value_size, in, at, first_query + a) : nullptr;
        return load_quad(from, f, in.value_size, in.value_quads);
      });
      store_transposed(memory.weights, ds);
      add_values(key_totals, memory, first_feature, in.size,
                 [&](int a, int f) { return load_query(in, in.u, at, first_query + a, f); });
      if (to.sums != nullptr && threadIdx.x < kTile) {
        key_sum += sum_of_weights(memory.weights + threadIdx.x * kWeightStride);
      }
    }
    const int key = first_key + in.slots + static_cast<int>(threadIdx.x);
    if (to.sums != nullptr && blockIdx.y == 0 && threadIdx.x < kTile && key < keys) {
      to.sums[(static_cast<int64_t>(row) * in.heads + head) * keys + key] = key_sum;
    }
  }

  const Place at = place_of(in, row, kv_head * group);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int position = first_key + thread_y() + i * kSide;
    if (position >= in.queries) continue;
    const bool has_keys = (position < 0 ? to.dcache_k : to.dk) != nullptr;
    const bool has_values = (position < 0 ? to.dcache_v : to.dv) != nullptr;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (has_keys && f < in.size) {
        store_quad(line_of_key(to.dk, to.dcache_k, in.size, in, at, position), f, in.size, in.quads,
                   key_totals[chunk][i], A{1});
      }
      if (has_values && f < in.value_size) {
        store_quad(line_of_key(to.dv, to.dcache_v, in.value_size, in, at, position), f, in.value_size, in.value_quads,
                   value_totals[chunk][i], A{1});
      }
    }
  }
}

// A block sums over the tiles of queries of one group, for one head and tile of distances (x) and one slice of the
// features (y). The groups share out the tiles of queries of all rows.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    distance_gradient_kernel(Wide<T>* dr_parts,    // [groups, N, H, D] or null
                             Wide<T>* sums_parts,  // [groups, H, N]: sums of the gradients of logits at a distance
                             int groups, AttentionOperands<T> in, BackwardOperands<T> back) {
  using A = Wide<T>;
  const TileMemory<A> memory(true, in.r != nullptr);
  const int distance_tiles = ceil_div(in.entries, kTile);
  const int group = static_cast<int>(blockIdx.x) % groups;
  const int line = static_cast<int>(blockIdx.x) / groups;
  const int first_distance = line % distance_tiles * kTile;
  const int head = line / distance_tiles;
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int query_tiles = ceil_div(in.queries, kTile);
  const int64_t units = static_cast<int64_t>(in.rows) * query_tiles;

  Pairs<A> totals[kChunks] = {};
  A sum = 0;
  for (int64_t unit = units * group / groups; unit < units * (group + 1) / groups; ++unit) {
    const VisibleRange range = back.ranges[unit];
    if (range.far < first_distance) continue;
    const int first_query = static_cast<int>(unit % query_tiles) * kTile;
    const Place at = place_of(in, static_cast<int>(unit / query_tiles), head);
    Pairs<A> p;
    Pairs<A> ds;
    recompute<true>(p, ds, memory, in, back, at, range, first_query, first_distance);
    store_transposed(memory.weights, ds);
    if (dr_parts != nullptr) {
      add_values(totals, memory, first_feature, in.size,
                 [&](int a, int f) { return load_query(in, in.v_bias, at, first_query + a, f); });
    } else {
      __syncthreads();
    }
    if (threadIdx.x < kTile) sum += sum_of_weights(memory.weights + threadIdx.x * kWeightStride);
  }

  const int distance = first_distance + static_cast<int>(threadIdx.x);
  if (blockIdx.y == 0 && threadIdx.x < kTile && distance < in.entries) {
    sums_parts[(static_cast<int64_t>(group) * in.heads + head) * in.entries + in.entries - 1 - distance] = sum;
  }
  if (dr_parts == nullptr) return;
  A* const part = dr_parts + static_cast<int64_t>(group) * in.entries * in.heads * in.size;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int mine = first_distance + thread_y() + i * kSide;
    if (mine >= in.entries) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.size) continue;
      store_quad(line_of_distance(part, in, Place{0, head, 0, 0}, mine), f, in.size, in.size % kQuad == 0,
                 totals[chunk][i], A{1});
    }
  }
}

// Runs the three passes of one call.
template <typename T>
struct Backward {
  using A = Wide<T>;
  static constexpr bool kHalf = std::is_same_v<T, bfloat16>;
  const ops::AttentionGradients& g;
  const ops::AttentionInputs& in;
  const AttentionSizes& s;
  const AttentionOperands<T>& operands;
  const BackwardOperands<T>& back;
  bool on_tensor_cores;

  void queries() const {
    if (!g.dq.defined()) return;
    if constexpr (kHalf) {
      if (on_tensor_cores) return query_gradient_on_tensor_cores(g.dq, operands, back);
    }
    with_chunks<T>(s.size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.heads * ceil_div(s.queries, kTile)),
                        static_cast<unsigned>(ceil_div(s.size, kChunks * kTile)));
      launch(query_gradient_kernel<T, kChunks>, blocks, kThreads,
             TileMemory<A>::bytes(false, in.r.defined(), in.dropout > 0), g.dq.data<T>(), operands, back);
    });
  }

  void keys() const {
    const KeyGradientScratch scratch(s, g, dtype_of<A>(), in.q.device());
    const auto gradient = [](const Tensor& tensor) { return tensor.defined() ? tensor.data<T>() : nullptr; };
    const KeyGradients<T> to{gradient(g.dk), gradient(g.dv), gradient(g.dcache_k), gradient(g.dcache_v),
                             scratch.sums.defined() ? scratch.sums.data<A>() : nullptr};
    key_gradients(to);
    if (g.du.defined()) {
      add_weighted_lines<true>(g.du, scratch.sums, scratch.lines, s.rows * (s.slots + s.queries), operands, in.scale);
    }
  }

  void key_gradients(const KeyGradients<T>& to) const {
    if constexpr (kHalf) {
      if (on_tensor_cores) return key_gradient_on_tensor_cores(to, operands, back);
    }
    const int64_t widest = std::max(s.size, s.value_size);
    with_chunks<T>(widest, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.kv_heads * ceil_div(s.slots + s.queries, kTile)),
                        static_cast<unsigned>(ceil_div(widest, kChunks * kTile)));
      launch(key_gradient_kernel<T, kChunks>, blocks, kThreads,
             TileMemory<A>::bytes(false, in.r.defined(), in.dropout > 0), to, operands, back);
    });
  }

  void distances() const {
    if (!DistanceGradientScratch::needed(g)) return;
    const DistanceGradientScratch scratch(s, g, dtype_of<A>(), in.q.device());
    distance_gradients(scratch);
    if (g.dr.defined()) add_parts<T>(g.dr, scratch.r_parts, 1);
    if (!g.dbias.defined() && !g.dv_bias.defined()) return;
    const Tensor& sums = g.dbias.defined() ? g.dbias : scratch.sums;
    add_parts<A>(sums, scratch.sum_parts, 1);
    if (g.dv_bias.defined()) add_weighted_lines<false>(g.dv_bias, sums, scratch.lines, s.entries, operands, in.scale);
  }

  void distance_gradients(const DistanceGradientScratch& scratch) const {
    A* const r_parts = scratch.r_parts.defined() ? scratch.r_parts.data<A>() : nullptr;
    A* const sum_parts = scratch.sum_parts.data<A>();
    if constexpr (kHalf) {
      if (on_tensor_cores) {
        return distance_gradient_on_tensor_cores(r_parts, sum_parts, scratch.groups, operands, back);
      }
    }
    const int64_t tiles = s.heads * ceil_div(s.entries, kTile);
    const int64_t width = g.dr.defined() ? s.size : 1;
    with_chunks<T>(width, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(tiles * scratch.groups),
                        static_cast<unsigned>(ceil_div(width, kChunks * kTile)));
      launch(distance_gradient_kernel<T, kChunks>, blocks, kThreads,
             TileMemory<A>::bytes(true, in.r.defined(), in.dropout > 0), r_parts, sum_parts, scratch.groups, operands,
             back);
    });
  }
};

void attention_backward(const ops::AttentionGradients& g, const Tensor& dout, const Tensor& out, const Tensor& lse,
                        const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  check_attention_backward(s, g, dout, out, lse, in);
  if (in.kernels == ops::AttentionKernels::cudnn) return attention_backward_in_cudnn(s, g, dout, out, lse, in);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    AttentionOperands<T> operands = operands_of<T>(in, s);
    operands.quads = operands.quads && in_quads<T>(s.size, {&g.dq, &g.dk, &g.dcache_k});
    operands.value_quads = operands.value_quads && in_quads<T>(s.value_size, {&dout, &g.dv, &g.dcache_v});
    static_assert(kGpuTile == kTile && sizeof(VisibleRange) == 3 * sizeof(int32_t));
    const AttentionBackwardScratch scratch(s, dtype_of<A>(), in.q.device());
    if (!g.delta.defined()) launch_delta<T>(scratch.delta, dout, out);
    const Tensor& delta = g.delta.defined() ? g.delta : scratch.delta;
    auto* const ranges_data = static_cast<VisibleRange*>(scratch.ranges.raw());
    launch(ranges_kernel<T>, dim3(static_cast<unsigned>(scratch.ranges.dim(0))), kTile, 0, ranges_data, operands);
    const BackwardOperands<T> back{dout.data<T>(), lse.data<A>(), delta.data<A>(), ranges_data};
    const bool on_tensor_cores = backward_suits_tensor_cores(g, dout, in, s);
    const Backward<T> backward{g, in, s, operands, back, on_tensor_cores};
    backward.queries();
    backward.keys();
    backward.distances();
  });
}

}  // namespace

void bind_attention_backward() {
  ops::attention_backward.bind(DeviceKind::cuda, attention_backward);
}

}  // namespace quire::cuda
