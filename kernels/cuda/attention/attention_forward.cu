#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/attention/attention_tiles.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"

namespace quire::cuda {

namespace {

// A block has one row, head and tile of queries (x) and a slice of the values' features (y). It computes an online
// softmax over the tiles of keys: a larger logit rescales the sums so far.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads) attention_kernel(T* out, Wide<T>* lse, AttentionOperands<T> in) {
  using A = Wide<T>;
  const TileMemory<A> memory(false, in.r != nullptr);
  const int tiles = ceil_div(in.queries, kTile);
  const int line = static_cast<int>(blockIdx.x) / tiles;
  // Tiles with many keys begin first.
  const int first_query = (tiles - 1 - static_cast<int>(blockIdx.x) % tiles) * kTile;
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const Place at = place_of(in, line / in.heads, line % in.heads);

  load_distances(memory.nearest, memory.farthest, in, at.row, first_query);
  __syncthreads();
  const VisibleRange range = visible_range(memory.nearest, memory.farthest, in.slots, first_query);

  A top[kEach];
  A sum[kEach] = {};
  Pairs<A> totals[kChunks] = {};
  for (int i = 0; i < kEach; ++i)
    top[i] = std::numeric_limits<A>::lowest();  // finite, so that a difference is never NaN

  for (int tile = (range.low + in.slots) / kTile; tile * kTile - in.slots < range.high; ++tile) {
    const int first_key = tile * kTile - in.slots;
    const int origin = first_query - first_key;
    Pairs<A> p = {};
    fill_mask<false>(memory.mask, in, at, first_query, origin);
    add_logits<false>(p, memory, in, at, range, first_query, origin);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int a = thread_y() + i * kSide;
      const int nearest = memory.nearest[a];
      const int farthest = memory.farthest[a];
      A largest = top[i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int distance = distance_of<false>(origin, a, thread_x() + j * kSide);
        const bool seen = distance >= nearest && distance <= farthest;
        p[i][j] = seen ? p[i][j] + bias_of(in, at, distance) : -std::numeric_limits<A>::infinity();
        largest = p[i][j] > largest ? p[i][j] : largest;
      }
      largest = go_on(top[i], sum[i], totals, i, largest);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int c = thread_x() + j * kSide;
        const A value = std::exp(p[i][j] - largest);
        sum[i] += value;
        memory.weights[a * kWeightStride + c] =
            value * kept<false>(memory.mask, in, at, origin, a, distance_of<false>(origin, a, c));
      }
    }
    add_values(totals, memory, first_feature, in.value_size,
               [&](int b, int f) { return load_value(in, at, range, first_key + b, f); });
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const A all = sum_of_line(sum[i]);
    const int query = first_query + thread_y() + i * kSide;
    if (query >= in.queries) continue;
    const bool empty = all == 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.value_size) continue;
      store_quad(line_of_query(out, in.value_size, in, at, query), f, in.value_size, in.value_quads, totals[chunk][i],
                 empty ? A{0} : A{1} / all);
    }
    if (blockIdx.y == 0 && thread_x() == 0) {
      lse[(static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + query] =
          empty ? -std::numeric_limits<A>::infinity() : top[i] + std::log(all);
    }
  }
}

void attention(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  check_attention(s, out, lse, in);
  if (in.kernels == ops::AttentionKernels::cudnn) return attention_in_cudnn(s, out, lse, in);
  if (suits_tensor_cores(out, in, s)) return attention_on_tensor_cores(out, lse, in, s);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    AttentionOperands<T> operands = operands_of<T>(in, s);
    operands.value_quads = operands.value_quads && in_quads<T>(s.value_size, {&out});
    with_chunks<T>(s.value_size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.heads * ceil_div(s.queries, kTile)),
                        static_cast<unsigned>(ceil_div(s.value_size, kChunks * kTile)));
      launch(attention_kernel<T, kChunks>, blocks, kThreads,
             TileMemory<Wide<T>>::bytes(false, in.r.defined(), in.dropout > 0), out.data<T>(), lse.data<Wide<T>>(),
             operands);
    });
  });
}

}  // namespace

void bind_attention_forward() {
  ops::attention.bind(DeviceKind::cuda, attention);
}

}  // namespace quire::cuda
