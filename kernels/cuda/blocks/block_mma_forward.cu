#include "kernels/cuda/blocks/block_mma.h"

namespace quire::cuda {

bool suits_tensor_cores(const Tensor& out, const ops::BlockAttentionInputs& in, const BlockSizes& s) {
  if (in.q.dtype() != DType::bf16 || s.size > kMmaWidest) return false;
  return in_chunks(s.size, {&in.q, &in.k}) && in_chunks(s.value_size, {&in.v, &out});
}

namespace {

// Does what join_blocks in block_attention.cu does.
__device__ inline void join_blocks(TileSums& logits, const BlockMemory& blocks, const BlockMasks& masks,
                                   const BlockSoftmax<float> (&longs)[2], const BlocksInBf16& in, const KeyTile& tile,
                                   int count, int half) {
  const int a = warp_of_block() * kMmaRows + row_of_sum(2 * half);
  for (int g = 0; g < count && in.gates; ++g) {
    const bool earlier = blocks.is_earlier(a, g);
    if (!__any_sync(kAllLanes, earlier)) continue;
    const BlockSoftmax<float> softmax =
        tile.is_part() ? longs[half]
                       : softmax_of_block<false>(blocks, masks, g, in.empty_blocks_count, logits, logits, half);
    const float share = softmax.gate - softmax.log_sum;
    const LaneKeys regular(earlier ? masks.keys[g] : 0);
#pragma unroll
    for (int n = 0; n < kTileColumns; ++n) {
      if (!reaches(masks.keys[g], n)) continue;
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        if (regular.has(n, i)) logits[0][n].x[i] += share;
      }
    }
  }
  const LaneKeys counted(masks.visible[a] | masks.zeroed[a]);
  if (counted.is_full()) return;
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      if (!counted.has(n, i)) logits[0][n].x[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Applies dropout to the weights of the values, and removes the shares that landmarks keep for themselves.
__device__ inline void drop_shares(TileSums& weights, const BlockMasks& masks, const BlocksInBf16& in, int half) {
  const int a = warp_of_block() * kMmaRows + row_of_sum(2 * half);
  const LaneKeys nothing(masks.zeroed[a]);
  const LaneKeys scaled(in.dropout ? masks.earlier[a] : 0);
  if (nothing.is_empty() && scaled.is_empty()) return;
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      if (scaled.has(n, i)) weights[0][n].x[i] *= in.kept;
      if (nothing.has(n, i)) weights[0][n].x[i] = 0;
    }
  }
}

// A block computes one row, head and tile of queries (x) and one slice of the values' features (y).
template <int kWidth>
__global__ void __launch_bounds__(kMmaThreads) block_mma_kernel(bfloat16* out, float* lse, BlocksInBf16 in) {
  constexpr int kFeatures = kWidth / kMmaColumns;
  const BlockLines<kWidth, false, false> memory;
  const int query_tiles = ceil_div(in.queries, kMmaTile);
  const int line = static_cast<int>(blockIdx.x) / query_tiles;
  const int head = line % in.heads;
  // Tiles with many keys begin first.
  const int first_query = (query_tiles - 1 - static_cast<int>(blockIdx.x) % query_tiles) * kMmaTile;
  const QueryTile at{line / in.heads, head, head / (in.heads / in.kv_heads), first_query};
  const int first_feature = static_cast<int>(blockIdx.y) * kWidth;
  const int value_size = in.value_size - first_feature < kWidth ? in.value_size - first_feature : kWidth;
  const int first_line = warp_of_block() * kMmaRows;
  const int end = last_place(in, at) + 1;

  // They belong to a lane's rows group and group + 8.
  float top[2];
  float sum[2] = {0, 0};
  for (float& of_row : top) of_row = std::numeric_limits<float>::lowest();  // finite, so that a difference is never NaN
  BlockSoftmax<float> longs[2];
  SumFragment totals[1][kFeatures] = {};

  copy_queries(memory.queries, in.q, in.size, in, at);
  const KeyTile* const tiles = in.tiles + static_cast<int64_t>(at.row) * in.max_tiles;
  for (int n = 0; n < in.max_tiles && tiles[n].begin < end; ++n) {
    const KeyTile tile = tiles[n];
    if (!is_visible(memory.blocks, in, at, tile)) continue;
    if (needs_long_block(in, at, tile) && tile.begin == tile.block_begin) {
      softmax_of_long_block<false>(longs, memory, in, at, tile);
    }
    const int count = prepare_keys(memory.blocks, in, at.row, tile);
    copy_keys(memory.keys, in.k, in.size, 0, in.size, memory.blocks, in, at, tile);
    copy_keys(memory.values, in.v, in.value_size, first_feature, value_size, memory.blocks, in, at, tile);
    memory.masks.cut(memory.blocks, tile);
    prepare_queries(memory.blocks, in, at, count);
    __syncthreads();
    memory.masks.look(memory.blocks, in, at, tile);
    await_copies();
    __syncthreads();
    TileSums logits;
    multiply_logits(logits, memory.queries, memory.keys, in);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      join_blocks(logits, memory.blocks, memory.masks, longs, in, tile, count, half);
      go_on(top[half], sum[half], logits[0], totals[0], half);
      drop_shares(logits, memory.masks, in, half);
    }
    __syncwarp();
    multiply_weights(totals, logits, memory.values, 0, value_size);
  }
  await_copies();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float all = sum_of_row(sum[half]);
    const int a = first_line + row_of_sum(2 * half);
    if (at.first + a >= in.queries) continue;
    const bool empty = all == 0;
    const float factor = empty ? 0.0F : 1.0F / all;
    bfloat16* const to = line_of_query(out, in.value_size, in, at, a) + first_feature;
#pragma unroll
    for (int n = 0; n < kFeatures; ++n) {
      const int f = n * kMmaColumns + column_of_sum(0);
      if (f < value_size) store_features(to + f, totals[0][n], half, factor);
    }
    if (blockIdx.y == 0 && lane_of_warp() % 4 == 0) {
      lse[lse_of(in, at, a)] = empty ? -std::numeric_limits<float>::infinity() : (top[half] + log2f(all)) * kLn2;
    }
  }
}

template <int kWidth>
void launch_forward(const Tensor& out, const Tensor& lse, const BlocksInBf16& in) {
  const dim3 blocks(static_cast<unsigned>(in.rows * in.heads * ceil_div(in.queries, kMmaTile)),
                    static_cast<unsigned>(ceil_div(in.value_size, kWidth)));
  launch(block_mma_kernel<kWidth>, blocks, kMmaThreads, BlockLines<kWidth, false, false>::bytes(), out.data<bfloat16>(),
         lse.data<float>(), in);
}

}  // namespace

void blocks_on_tensor_cores(const Tensor& out, const Tensor& lse, const BlocksInBf16& in) {
  if (in.size <= 64 && in.value_size <= 64) return launch_forward<64>(out, lse, in);
  launch_forward<kMmaWidest>(out, lse, in);
}

}  // namespace quire::cuda
