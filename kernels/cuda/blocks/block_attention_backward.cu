// Two passes recompute the tiles, one for each side that is summed over the other: queries (dq), then keys (dk, dv).
// The first pass stores for the second one the softmax within each long block, which depends on several tiles.
#include <algorithm>

#include "kernels/block_attention.h"
#include "kernels/cuda/blocks/block_mma.h"

namespace quire::cuda {

namespace {

// Turns p from the logits of a line into the weights that multiplied the values, and ds from gradients of weights into
// gradients of logits. With the share a of a landmark, its factor m of dropout and P the softmax within its block, a
// key has the gradient m a P (dw - sum of P dw) and the landmark a (m sum of P dw - delta); a gate that is a key has p
// (dw - delta).
template <typename T>
__device__ inline void softmax_gradient(Wide<T> (&p)[kEach], Wide<T> (&ds)[kEach], const BlockMemory& memory,
                                        const BlockSoftmax<Wide<T>>& of_long, const WholeSoftmax<Wide<T>>& whole,
                                        const BlockOperands<T>& in, const KeyTile& tile, int blocks, int a, int place) {
  using A = Wide<T>;
  bool done[kEach] = {};
  for (int g = 0; g < blocks && in.gates; ++g) {
    if (!memory.is_earlier_for_warp(a, g)) continue;
    const BlockSoftmax<A> softmax =
        tile.is_part() ? of_long : softmax_of_block<true>(memory, g, in.empty_blocks_count, p, ds);
    if (!memory.is_earlier(a, g)) continue;
    const A share = std::exp(softmax.gate - whole.log_sum);
    const A factor = memory.share(in, a, g);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int c = thread_x() + j * kSide;
      if (memory.regular_block(c) == g) {
        p[j] = factor * std::exp(p[j] - softmax.log_sum + softmax.gate - whole.log_sum);
        ds[j] = p[j] * (ds[j] - softmax.inner);
        done[j] = true;
      } else if (memory.landmark_block(c) == g) {
        p[j] = 0;
        ds[j] = share * (factor * softmax.inner - whole.delta);
        done[j] = true;
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (done[j]) continue;
    const bool sees = memory.sees(a, thread_x() + j * kSide, place);
    p[j] = sees ? std::exp(p[j] - whole.log_sum) : A{0};
    ds[j] = sees ? p[j] * (ds[j] - whole.delta) : A{0};
  }
}

// Recomputes p, the weights of a tile, and ds, the gradients of its logits. `longs` is the softmax within a long block.
// It ends with a barrier.
template <typename T>
__device__ inline void recompute(Pairs<Wide<T>>& p, Pairs<Wide<T>>& ds, const TileMemory<Wide<T>>& memory,
                                 BlockMemory& blocks, const BlockSoftmax<Wide<T>> (&longs)[kEach],
                                 const BlockOperands<T>& in, const BlockBackward<T>& back, const QueryTile& at,
                                 const KeyTile& tile, int count) {
  prepare_queries(blocks, in, at, count);
  add_block_logits(p, memory, blocks, in, at, tile.begin);
  add_weight_gradients(ds, memory, blocks, back.dout, in, at, tile.begin);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    softmax_gradient(p[i], ds[i], blocks, longs[i], load_softmax(back, in, at, a), in, tile, count, a,
                     in.before() + at.first + a - tile.begin);
  }
}

// Computes dq for one row, head and tile of queries (x) and one slice of the features (y).
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    block_query_gradient_kernel(T* dq, BlockOperands<T> in, BlockBackward<T> back) {
  using A = Wide<T>;
  __shared__ BlockMemory blocks;
  const TileMemory<A> memory(false, false);
  const int query_tiles = ceil_div(in.queries, kTile);
  const int line = static_cast<int>(blockIdx.x) / query_tiles;
  const int head = line % in.heads;
  const int first_query = (query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles) * kTile;
  const QueryTile at{line / in.heads, head, head / (in.heads / in.kv_heads), first_query};
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int end = last_place(in, at) + 1;

  Pairs<A> totals[kChunks] = {};
  BlockSoftmax<A> longs[kEach];
  const KeyTile* const tiles = in.tiles + static_cast<int64_t>(at.row) * in.max_tiles;
  for (int n = 0; n < in.max_tiles && tiles[n].begin < end; ++n) {
    const KeyTile tile = tiles[n];
    if (!is_visible(blocks, in, at, tile)) continue;
    if (needs_long_block(in, at, tile) && tile.begin == tile.block_begin) {
      softmax_of_long_block<true>(longs, memory, blocks, back.dout, in, at, tile);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int a = thread_y() + i * kSide;
        if (blockIdx.y > 0 || thread_x() > 0 || at.first + a >= in.queries) continue;
        A* const to = long_block_of(back, in, at, a, tile.line);
        to[0] = longs[i].log_sum;
        to[1] = longs[i].gate;
        to[2] = longs[i].inner;
      }
    }
    const int count = prepare_keys(blocks, in, at.row, tile);
    Pairs<A> p;
    Pairs<A> ds;
    recompute(p, ds, memory, blocks, longs, in, back, at, tile, count);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        memory.weights[(thread_y() + i * kSide) * kWeightStride + thread_x() + j * kSide] = ds[i][j];
      }
    }
    add_values(totals, memory, first_feature, in.size,
               [&](int c, int f) { return load_key(blocks, in, at, tile.begin, c, f); });
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    if (at.first + a >= in.queries) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.size) continue;
      store_quad(line_of_query(dq, in.size, in, at, a), f, in.size, in.quads, totals[chunk][i], in.scale);
    }
  }
}

// Computes dk, dv or both for one row, key head and tile of keys (x) and one slice of the features (y). It goes over
// the query heads of the group one after another.
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads)
    block_key_gradient_kernel(T* dk, T* dv, BlockOperands<T> in, BlockBackward<T> back) {
  using A = Wide<T>;
  __shared__ BlockMemory blocks;
  const int line = static_cast<int>(blockIdx.x) / in.max_tiles;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const KeyTile tile = in.tiles[static_cast<int64_t>(row) * in.max_tiles + static_cast<int>(blockIdx.x) % in.max_tiles];
  if (tile.begin >= in.keys) return;  // the whole block returns
  const TileMemory<A> memory(false, false);
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int group = in.heads / in.kv_heads;
  const int first_seeing = tile.begin > in.before() ? (tile.begin - in.before()) / kTile * kTile : 0;
  const int count = prepare_keys(blocks, in, row, tile);

  Pairs<A> key_totals[kChunks] = {};
  Pairs<A> value_totals[kChunks] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int first_query = first_seeing; first_query < in.queries; first_query += kTile) {
      const QueryTile at{row, head, kv_head, first_query};
      if (!is_visible(blocks, in, at, tile)) continue;
      BlockSoftmax<A> longs[kEach];
#pragma unroll
      for (int i = 0; i < kEach && needs_long_block(in, at, tile); ++i) {
        const int a = thread_y() + i * kSide;
        if (at.first + a >= in.queries) continue;
        const A* const from = long_block_of(back, in, at, a, tile.line);
        longs[i].log_sum = from[0];
        longs[i].gate = from[1];
        longs[i].inner = from[2];
      }
      Pairs<A> p;
      Pairs<A> ds;
      recompute(p, ds, memory, blocks, longs, in, back, at, tile, count);
      store_transposed(memory.weights, p);
      add_values(value_totals, memory, first_feature, in.value_size,
                 [&](int a, int f) { return load_gradient(back.dout, in, at, a, f); });
      store_transposed(memory.weights, ds);
      add_values(key_totals, memory, first_feature, in.size, [&](int a, int f) { return load_query(in, at, a, f); });
    }
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int key = tile.begin + thread_y() + i * kSide;
    if (key >= tile.end) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (dk != nullptr && f < in.size) {
        store_quad(line_of_key(dk, in.size, in, row, kv_head, key), f, in.size, in.quads, key_totals[chunk][i], A{1});
      }
      if (dv != nullptr && f < in.value_size) {
        store_quad(line_of_key(dv, in.value_size, in, row, kv_head, key), f, in.value_size, in.value_quads,
                   value_totals[chunk][i], A{1});
      }
    }
  }
}

void block_attention_backward(const ops::BlockAttentionGradients& g, const Tensor& dout, const Tensor& dlse,
                              const Tensor& out, const Tensor& lse, const ops::BlockAttentionInputs& in) {
  const BlockSizes s(in);
  check_block_attention_backward(s, g, dout, dlse, out, lse, in);
  const BlockScratch scratch(s, in.q.device());
  const BlockBackwardScratch more(s, in, in.q.device());
  cut_blocks(scratch.tiles, in.block);
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    using A = Wide<T>;
    BlockOperands<T> operands = operands_of<T>(in, s, scratch);
    operands.quads = operands.quads && in_quads<T>(s.size, {&g.dq, &g.dk});
    operands.value_quads = operands.value_quads && in_quads<T>(s.value_size, {&dout, &g.dv});
    launch_delta<T>(more.delta, dout, out);
    const bool any_long = more.long_blocks.defined();
    const BlockBackward<T> back{dout.data<T>(),
                                lse.data<A>(),
                                data_or_null<A>(dlse),
                                more.delta.data<A>(),
                                any_long ? more.long_blocks.data<A>() : nullptr,
                                any_long ? static_cast<int>(more.long_blocks.dim(3)) : 0};
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (backward_suits_tensor_cores(g, dout, in, s)) {
        query_gradient_on_tensor_cores(g.dq, operands, back);
        if (g.dk.defined() || g.dv.defined()) key_gradient_on_tensor_cores(g.dk, g.dv, operands, back);
        return;
      }
    }
    with_chunks<T>(s.size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.heads * ceil_div(s.queries, kTile)),
                        static_cast<unsigned>(ceil_div(s.size, kChunks * kTile)));
      launch(block_query_gradient_kernel<T, kChunks>, blocks, kThreads, TileMemory<A>::bytes(false, false, false),
             g.dq.data<T>(), operands, back);
    });
    if (!g.dk.defined() && !g.dv.defined()) return;
    const int64_t widest = std::max(s.size, s.value_size);
    with_chunks<T>(widest, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.kv_heads * operands.max_tiles),
                        static_cast<unsigned>(ceil_div(widest, kChunks * kTile)));
      launch(block_key_gradient_kernel<T, kChunks>, blocks, kThreads, TileMemory<A>::bytes(false, false, false),
             g.dk.defined() ? g.dk.data<T>() : nullptr, g.dv.defined() ? g.dv.data<T>() : nullptr, operands, back);
    });
  });
}

}  // namespace

void bind_block_attention_backward() {
  ops::block_attention_backward.bind(DeviceKind::cuda, block_attention_backward);
}

}  // namespace quire::cuda
