#include "kernels/block_attention.h"

#include "kernels/cuda/blocks/block_mma.h"

namespace quire::cuda {

namespace {

// Turns the logits of a tile into those of one softmax over all that a query sees: an earlier block with a landmark
// gets, as a whole, the weight of its gate. Keys that are not seen get -inf. `longs` is the softmax within a long
// block.
template <typename T>
__device__ inline void join_blocks(Pairs<Wide<T>>& p, const BlockMemory& memory, const BlockSoftmax<Wide<T>>* longs,
                                   const BlockOperands<T>& in, const QueryTile& at, const KeyTile& tile, int blocks) {
  using A = Wide<T>;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int a = thread_y() + i * kSide;
    for (int g = 0; g < blocks && in.gates; ++g) {
      if (!memory.is_earlier_for_warp(a, g)) continue;
      const BlockSoftmax<A> softmax =
          tile.is_part() ? longs[i] : softmax_of_block<false>(memory, g, in.empty_blocks_count, p[i], p[i]);
      if (!memory.is_earlier(a, g)) continue;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (memory.regular_block(thread_x() + j * kSide) == g) p[i][j] += softmax.gate - softmax.log_sum;
      }
    }
    const int place = in.before() + at.first + a - tile.begin;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int c = thread_x() + j * kSide;
      const int marked = memory.landmark_block(c);
      const bool alone = marked >= 0 && memory.empty[marked] && memory.is_earlier(a, marked);
      if (!alone && !memory.sees(a, c, place)) p[i][j] = -std::numeric_limits<A>::infinity();
    }
  }
}

// A block computes one row, head and tile of queries (x) and one slice of the values' features (y).
template <typename T, int kChunks>
__global__ void __launch_bounds__(kThreads) block_attention_kernel(T* out, Wide<T>* lse, BlockOperands<T> in) {
  using A = Wide<T>;
  __shared__ BlockMemory blocks;
  const TileMemory<A> memory(false, false);
  const int query_tiles = ceil_div(in.queries, kTile);
  const int line = static_cast<int>(blockIdx.x) / query_tiles;
  const int head = line % in.heads;
  // Tiles with many keys begin first.
  const int first_query = (query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles) * kTile;
  const QueryTile at{line / in.heads, head, head / (in.heads / in.kv_heads), first_query};
  const int first_feature = static_cast<int>(blockIdx.y) * kChunks * kTile;
  const int end = last_place(in, at) + 1;

  A top[kEach];
  A sum[kEach] = {};
  Pairs<A> totals[kChunks] = {};
  BlockSoftmax<A> longs[kEach];
  for (int i = 0; i < kEach; ++i) top[i] = std::numeric_limits<A>::lowest();

  const KeyTile* const tiles = in.tiles + static_cast<int64_t>(at.row) * in.max_tiles;
  for (int n = 0; n < in.max_tiles && tiles[n].begin < end; ++n) {
    const KeyTile tile = tiles[n];
    if (!is_visible(blocks, in, at, tile)) continue;
    if (needs_long_block(in, at, tile) && tile.begin == tile.block_begin) {
      softmax_of_long_block<false>(longs, memory, blocks, static_cast<const T*>(nullptr), in, at, tile);
    }
    const int count = prepare_keys(blocks, in, at.row, tile);
    prepare_queries(blocks, in, at, count);
    Pairs<A> p;
    add_block_logits(p, memory, blocks, in, at, tile.begin);
    join_blocks(p, blocks, longs, in, at, tile, count);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int a = thread_y() + i * kSide;
      A largest = top[i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) largest = p[i][j] > largest ? p[i][j] : largest;
      largest = go_on(top[i], sum[i], totals, i, largest);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int c = thread_x() + j * kSide;
        const int g = blocks.regular_block(c);
        const A value = std::exp(p[i][j] - largest);
        sum[i] += value;
        memory.weights[a * kWeightStride + c] = g < 0 ? A{0} : value * blocks.share(in, a, g);
      }
    }
    add_values(totals, memory, first_feature, in.value_size,
               [&](int c, int f) { return load_value(blocks, in, at, tile.begin, c, f); });
  }

#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const A all = sum_of_line(sum[i]);
    const int a = thread_y() + i * kSide;
    if (at.first + a >= in.queries) continue;
    const bool empty = all == 0;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int f = first_feature + chunk * kTile + thread_x() * kQuad;
      if (f >= in.value_size) continue;
      store_quad(line_of_query(out, in.value_size, in, at, a), f, in.value_size, in.value_quads, totals[chunk][i],
                 empty ? A{0} : A{1} / all);
    }
    if (blockIdx.y == 0 && thread_x() == 0) {
      lse[lse_of(in, at, a)] = empty ? -std::numeric_limits<A>::infinity() : top[i] + std::log(all);
    }
  }
}

void block_attention(const Tensor& out, const Tensor& lse, const ops::BlockAttentionInputs& in) {
  const BlockSizes s(in);
  check_block_attention(s, out, lse, in);
  const BlockScratch scratch(s, in.q.device());
  cut_blocks(scratch.tiles, in.block);
  if (suits_tensor_cores(out, in, s)) return blocks_on_tensor_cores(out, lse, operands_of<bfloat16>(in, s, scratch));
  dispatch(in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    BlockOperands<T> operands = operands_of<T>(in, s, scratch);
    operands.value_quads = operands.value_quads && in_quads<T>(s.value_size, {&out});
    with_chunks<T>(s.value_size, [&](auto chunks) {
      constexpr int kChunks = decltype(chunks)::value;
      const dim3 blocks(static_cast<unsigned>(s.rows * s.heads * ceil_div(s.queries, kTile)),
                        static_cast<unsigned>(ceil_div(s.value_size, kChunks * kTile)));
      launch(block_attention_kernel<T, kChunks>, blocks, kThreads, TileMemory<Wide<T>>::bytes(false, false, false),
             out.data<T>(), lse.data<Wide<T>>(), operands);
    });
  });
}

}  // namespace

void bind_block_attention() {
  ops::block_attention.bind(DeviceKind::cuda, block_attention);
}

}  // namespace quire::cuda
