// Does what block_attention_backward.cu does, on tensor cores: two passes, in which every sum has one writer.
#include "kernels/cuda/blocks/block_mma.h"

namespace quire::cuda {

bool backward_suits_tensor_cores(const ops::BlockAttentionGradients& g, const Tensor& dout,
                                 const ops::BlockAttentionInputs& in, const BlockSizes& s) {
  return suits_tensor_cores(dout, in, s) && s.value_size <= kMmaWidest && in_chunks(s.size, {&g.dq, &g.dk}) &&
         in_chunks(s.value_size, {&g.dv});
}

namespace {

// Holds the softmax of both of a lane's rows; its logarithm is in powers of 2.
struct RowsSoftmax {
  WholeSoftmax<float> row[2];

  __device__ RowsSoftmax(const BlockBackward<bfloat16>& back, const BlocksInBf16& in, const QueryTile& at) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row[half] = load_softmax(back, in, at, warp_of_block() * kMmaRows + row_of_sum(2 * half));
      row[half].log_sum *= kLog2E;
    }
  }
};

// Turns p from the logits of a tile into the weights that multiplied the values, and ds from gradients of weights into
// gradients of logits. The formulas are at softmax_gradient in block_attention_backward.cu.
__device__ inline void softmax_gradient(TileSums& p, TileSums& ds, const BlockMemory& blocks, const BlockMasks& masks,
                                        const BlockSoftmax<float> (&longs)[2], const RowsSoftmax& whole,
                                        const BlocksInBf16& in, const KeyTile& tile, int count) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int a = warp_of_block() * kMmaRows + row_of_sum(2 * half);
    const float log_sum = whole.row[half].log_sum;
    const float delta = whole.row[half].delta;
    for (int g = 0; g < count && in.gates; ++g) {
      const bool earlier = blocks.is_earlier(a, g);
      if (!__any_sync(kAllLanes, earlier)) continue;
      const BlockSoftmax<float> softmax =
          tile.is_part() ? longs[half] : softmax_of_block<true>(blocks, masks, g, in.empty_blocks_count, p, ds, half);
      const float factor = blocks.share(in, a, g);
      const float shift = softmax.gate - softmax.log_sum - log_sum;
      const float of_mark = exp2f(softmax.gate - log_sum) * (factor * softmax.inner - delta);
      const LaneKeys regular(earlier ? masks.keys[g] : 0);
      const LaneKeys marked(earlier ? masks.marks[g] : 0);
#pragma unroll
      for (int n = 0; n < kTileColumns; ++n) {
        if (!reaches(masks.keys[g] | masks.marks[g], n)) continue;
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          if (regular.has(n, i)) {
            p[0][n].x[i] = factor * exp2f(p[0][n].x[i] + shift);
            ds[0][n].x[i] = p[0][n].x[i] * (ds[0][n].x[i] - softmax.inner);
          } else if (marked.has(n, i)) {
            p[0][n].x[i] = 0;
            ds[0][n].x[i] = of_mark;
          }
        }
      }
    }
    const LaneKeys done(masks.earlier[a]);
    const LaneKeys alone(masks.visible[a] & ~masks.earlier[a]);
#pragma unroll
    for (int n = 0; n < kTileColumns; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        if (done.has(n, i)) continue;
        const bool sees = alone.has(n, i);
        p[0][n].x[i] = sees ? exp2f(p[0][n].x[i] - log_sum) : 0.0F;
        ds[0][n].x[i] = sees ? p[0][n].x[i] * (ds[0][n].x[i] - delta) : 0.0F;
      }
    }
  }
}

// Computes dq for one row, head and tile of queries.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    block_query_gradient_mma_kernel(bfloat16* dq, BlocksInBf16 in, BlockBackward<bfloat16> back) {
  const BlockLines<kWidth, true, false> memory;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const int line = static_cast<int>(blockIdx.x) / query_tiles;
  const int head = line % in.heads;
  const int first_query = (query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles) * kMmaTile;
  const QueryTile at{line / in.heads, head, head / (in.heads / in.kv_heads), first_query};
  const int first_line = warp_of_block() * kMmaRows;
  const int end = last_place(in, at) + 1;

  copy_queries(memory.queries, in.q, in.size, in, at);
  copy_queries(memory.douts, back.dout, in.value_size, in, at);
  const RowsSoftmax whole(back, in, at);
  BlockSoftmax<float> longs[2];
  SumFragment totals[1][kWidth / kMmaColumns] = {};
  const KeyTile* const tiles = in.tiles + static_cast<int64_t>(at.row) * in.max_tiles;
  for (int n = 0; n < in.max_tiles && tiles[n].begin < end; ++n) {
    const KeyTile tile = tiles[n];
    if (!is_visible(memory.blocks, in, at, tile)) continue;
    if (needs_long_block(in, at, tile) && tile.begin == tile.block_begin) {
      softmax_of_long_block<true>(longs, memory, in, at, tile);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = first_line + row_of_sum(2 * half);
        if (lane_of_warp() % 4 > 0 || at.first + a >= in.queries) continue;
        float* const to = long_block_of(back, in, at, a, tile.line);
        to[0] = longs[half].log_sum;
        to[1] = longs[half].gate;
        to[2] = longs[half].inner;
      }
    }
    const int count = prepare_keys(memory.blocks, in, at.row, tile);
    copy_keys(memory.keys, in.k, in.size, 0, in.size, memory.blocks, in, at, tile);
    copy_keys(memory.values, in.v, in.value_size, 0, in.value_size, memory.blocks, in, at, tile);
    memory.masks.cut(memory.blocks, tile);
    prepare_queries(memory.blocks, in, at, count);
    __syncthreads();
    memory.masks.look(memory.blocks, in, at, tile);
    await_copies();
    __syncthreads();
    TileSums p;
    TileSums ds;
    multiply_logits(p, memory.queries, memory.keys, in);
    multiply_tile(ds, memory.douts, memory.values, in.value_size);
    softmax_gradient(p, ds, memory.blocks, memory.masks, longs, whole, in, tile, count);
    __syncwarp();
    multiply_weights(totals, ds, memory.keys, 0, in.size);
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int a = first_line + row_of_sum(2 * half);
    if (at.first + a >= in.queries) continue;
    bfloat16* const to = line_of_query(dq, in.size, in, at, a);
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (f < in.size) store_features(to + f, totals[0][n], half, in.scale);
    }
  }
}

// Computes dk, dv or both for one row, key head and tile of keys. A warp computes the weights of 16 queries and sums
// over all queries for 16 keys, so weights pass through shared memory.
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads)
    block_key_gradient_mma_kernel(bfloat16* dk, bfloat16* dv, BlocksInBf16 in, BlockBackward<bfloat16> back) {
  const int line = static_cast<int>(blockIdx.x) / in.max_tiles;
  const int row = line / in.kv_heads;
  const int kv_head = line % in.kv_heads;
  const KeyTile tile = in.tiles[static_cast<int64_t>(row) * in.max_tiles + static_cast<int>(blockIdx.x) % in.max_tiles];
  if (tile.begin >= in.keys) return;  // the whole block returns
  const BlockLines<kWidth, true, true> memory;
  const int group = in.heads / in.kv_heads;
  const int first_seeing = tile.begin > in.before() ? (tile.begin - in.before()) / kMmaTile * kMmaTile : 0;
  const int first_line = warp_of_block() * kMmaRows;
  const bool works = first_line < tile.end - tile.begin;
  const int count = prepare_keys(memory.blocks, in, row, tile);
  const QueryTile any{row, 0, kv_head, 0};
  copy_keys(memory.keys, in.k, in.size, 0, in.size, memory.blocks, in, any, tile);
  copy_keys(memory.values, in.v, in.value_size, 0, in.value_size, memory.blocks, in, any, tile);
  memory.masks.cut(memory.blocks, tile);

  SumFragment key_totals[kWidth / kMmaColumns] = {};
  SumFragment value_totals[kWidth / kMmaColumns] = {};
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int first_query = first_seeing; first_query < in.queries; first_query += kMmaTile) {
      const QueryTile at{row, head, kv_head, first_query};
      if (!is_visible(memory.blocks, in, at, tile)) continue;
      copy_queries(memory.queries, in.q, in.size, in, at);
      copy_queries(memory.douts, back.dout, in.value_size, in, at);
      prepare_queries(memory.blocks, in, at, count);
      memory.masks.look(memory.blocks, in, at, tile);
      BlockSoftmax<float> longs[2];
#pragma unroll
      for (int half = 0; half < 2 && needs_long_block(in, at, tile); ++half) {
        const int a = first_line + row_of_sum(2 * half);
        if (at.first + a >= in.queries) continue;
        const float* const from = long_block_of(back, in, at, a, tile.line);
        longs[half].log_sum = from[0];
        longs[half].gate = from[1];
        longs[half].inner = from[2];
      }
      const RowsSoftmax whole(back, in, at);
      await_copies();
      __syncthreads();
      TileSums p;
      TileSums ds;
      multiply_logits(p, memory.queries, memory.keys, in);
      multiply_tile(ds, memory.douts, memory.values, in.value_size);
      softmax_gradient(p, ds, memory.blocks, memory.masks, longs, whole, in, tile, count);
      store_weights(memory.weights, first_line, p[0]);
      store_weights(memory.gradients, first_line, ds[0]);
      __syncthreads();
      if (works && dv != nullptr) {
        multiply_transposed(value_totals, memory.weights, first_line, memory.douts, in.value_size);
      }
      if (works && dk != nullptr)
        multiply_transposed(key_totals, memory.gradients, first_line, memory.queries, in.size);
    }
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int key = tile.begin + first_line + row_of_sum(2 * half);
    if (key >= tile.end) continue;
#pragma unroll
    for (int n = 0; n < kWidth / kMmaColumns; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (dk != nullptr && f < in.size) {
        store_features(line_of_key(dk, in.size, in, row, kv_head, key) + f, key_totals[n], half, in.scale);
      }
      if (dv != nullptr && f < in.value_size) {
        store_features(line_of_key(dv, in.value_size, in, row, kv_head, key) + f, value_totals[n], half, 1.0F);
      }
    }
  }
}

bfloat16* data_of(const Tensor& gradient) {
  return gradient.defined() ? gradient.data<bfloat16>() : nullptr;
}

// Calls function(width) with an integral constant.
template <typename Function>
void with_width(const BlocksInBf16& in, Function&& function) {
  if (in.size <= 64 && in.value_size <= 64) return function(std::integral_constant<int, 64>{});
  function(std::integral_constant<int, kMmaWidest>{});
}

}  // namespace

void query_gradient_on_tensor_cores(const Tensor& dq, const BlocksInBf16& in, const BlockBackward<bfloat16>& back) {
  with_width(in, [&](auto width) {
    launch(block_query_gradient_mma_kernel<width>,
           dim3(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kMmaTile))), kMmaThreads,
           BlockLines<width, true, false>::bytes(), dq.data<bfloat16>(), in, back);
  });
}

void key_gradient_on_tensor_cores(const Tensor& dk, const Tensor& dv, const BlocksInBf16& in,
                                  const BlockBackward<bfloat16>& back) {
  with_width(in, [&](auto width) {
    launch(block_key_gradient_mma_kernel<width>, dim3(static_cast<unsigned>(in.rows * in.kv_heads * in.max_tiles)),
           kMmaThreads, BlockLines<width, true, true>::bytes(), data_of(dk), data_of(dv), in, back);
  });
}

}  // namespace quire::cuda
