// Code that the kernels of attention to blocks in bf16 on tensor cores share (attention_mma.h, block_tiles.h). A thread
// block of four warps has a tile of 64 queries and a head; a warp has 16 of the queries and all keys of a tile. A word
// of 64 bits says which keys of a tile a query sees; its logits, in powers of 2, lie in four lanes.
#pragma once

#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/blocks/block_softmax.h"

namespace quire::cuda {

using BlocksInBf16 = BlockOperands<bfloat16>;
inline constexpr int kTileColumns = kMmaTile / kMmaColumns;
using TileSums = SumFragment[1][kTileColumns];  // for 16 queries and the keys of a tile

// Holds sets of keys of a tile in shared memory, one bit per key.
struct BlockMasks {
  uint64_t keys[kTile];     // of block g: the regular ones
  uint64_t marks[kTile];    // of block g: its landmark
  uint64_t visible[kTile];  // of query a: regular keys that it sees
  uint64_t earlier[kTile];  // of query a, where landmarks are gates: all keys of the earlier blocks that it sees
  uint64_t zeroed[kTile];   // of query a: keys whose shares go to no value (landmarks alone, and what dropout drops)

  // Fills the sets of blocks; prepare_keys must have run. A barrier must come before they are read.
  __device__ void cut(const BlockMemory& blocks, const KeyTile& tile) {
    const int c = static_cast<int>(threadIdx.x);
    const uint64_t starts = both(blocks.starts);
    if (c >= kTile || (starts >> c) % 2 == 0) return;
    const uint64_t earlier_ones = starts & below(c);
    const int g = __popc(static_cast<unsigned>(earlier_ones)) + __popc(static_cast<unsigned>(earlier_ones >> kWarp));
    // The block ends at the next one, or at the end of the tile.
    const uint64_t later = starts & ~below(c + 1);
    const uint64_t range = (later != 0 ? (later & (~later + 1)) - 1 : below(tile.end - tile.begin)) & ~below(c);
    keys[g] = range & both(blocks.regular);
    marks[g] = range & both(blocks.marked);
  }

  // Fills the sets of queries, in the threads that ran prepare_queries. A barrier must come before they are read.
  __device__ void look(const BlockMemory& blocks, const BlocksInBf16& in, const QueryTile& at, const KeyTile& tile) {
    const int a = static_cast<int>(threadIdx.x);
    if (a >= kTile) return;
    const int place = in.before() + at.first + a - tile.begin;
    uint64_t sees = 0;
    uint64_t gated = 0;
    uint64_t nothing = 0;
    for (int first = 0; first < kTile; first += kWarp) {
      for (auto left = static_cast<unsigned>(blocks.seen[a] >> first); left != 0; left &= left - 1) {
        const int g = first + __ffs(static_cast<int>(left)) - 1;
        const bool own = blocks.own[a] == g;
        sees |= own ? keys[g] & below(place + 1) : keys[g];
        if (own || !in.gates) continue;
        gated |= keys[g] | marks[g];
        if (blocks.empty[g]) nothing |= marks[g];
        if (in.dropout && (blocks.kept[a] >> g) % 2 == 0) nothing |= keys[g];
      }
    }
    visible[a] = sees;
    earlier[a] = gated;
    zeroed[a] = nothing;
  }

 private:
  static __device__ uint64_t both(const unsigned (&words)[2]) { return words[0] | uint64_t{words[1]} << kWarp; }
  // Returns the set of keys 0 to c - 1.
  static __device__ uint64_t below(int c) { return c <= 0 ? 0 : (c >= kTile ? ~uint64_t{0} : (uint64_t{1} << c) - 1); }
};

// Holds a lane's part of a set of keys: those whose sums it has.
struct LaneKeys {
  static constexpr unsigned kAll = 0x03030303;
  unsigned words[2];

  __device__ explicit LaneKeys(uint64_t keys) {
    keys >>= column_of_sum(0);
    words[0] = static_cast<unsigned>(keys) & kAll;
    words[1] = static_cast<unsigned>(keys >> kWarp) & kAll;
  }
  // Says whether the set has the key of sum i of column n.
  __device__ bool has(int n, int i) const { return (words[n / 4] >> (n % 4 * kMmaColumns + i % 2)) % 2 != 0; }
  __device__ bool is_empty() const { return (words[0] | words[1]) == 0; }
  __device__ bool is_full() const { return words[0] == kAll && words[1] == kAll; }
};

// Says whether a set, the same for all lanes, has keys among the eight of column n.
__device__ inline bool reaches(uint64_t keys, int n) {
  return (keys >> (n * kMmaColumns)) % (1 << kMmaColumns) != 0;
}

// Adds block g of a tile to the softmax of rows `half` of a warp (BlockSoftmax::take). dw is defined if kGradients.
template <bool kGradients>
__device__ inline void take_block(BlockSoftmax<float>& softmax, const BlockMasks& masks, int g, const TileSums& logits,
                                  const TileSums& dw, int half) {
  const uint64_t keys = masks.keys[g];
  const uint64_t marks = masks.marks[g];
  const LaneKeys regular(keys);
  const LaneKeys marked(marks);
  float largest = softmax.top;
  float mark = 0;
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) {
    if (!reaches(keys | marks, n)) continue;
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const float logit = logits[0][n].x[i];
      if (regular.has(n, i) && logit > largest) largest = logit;
      if (marked.has(n, i)) mark = logit;
    }
  }
  largest = largest_of_row(largest);
  softmax.gate += sum_of_row(mark);
  float more = 0;
  float product = 0;
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) {
    if (!reaches(keys, n)) continue;
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      const float value = regular.has(n, i) ? exp2f(logits[0][n].x[i] - largest) : 0.0F;
      more += value;
      if (kGradients && regular.has(n, i)) product += value * dw[0][n].x[i];
    }
  }
  const float correction = exp2f(softmax.top - largest);
  softmax.sum = softmax.sum * correction + sum_of_row(more);
  if (kGradients) softmax.inner = softmax.inner * correction + sum_of_row(product);
  softmax.top = largest;
}

// Returns the softmax within a whole block of a tile.
template <bool kGradients>
__device__ inline BlockSoftmax<float> softmax_of_block(const BlockMemory& blocks, const BlockMasks& masks, int g,
                                                       bool counted, const TileSums& logits, const TileSums& dw,
                                                       int half) {
  BlockSoftmax<float> softmax;
  take_block<kGradients>(softmax, masks, g, logits, dw, half);
  softmax.finish(counted && blocks.empty[g], log2f(softmax.sum));
  return softmax;
}

// Copies the lines of a tile's queries.
template <int kWidth>
__device__ inline void copy_queries(const SharedLines<kWidth>& to, const bfloat16* tensor, int width,
                                    const BlocksInBf16& in, const QueryTile& at) {
  copy_lines<kMmaTile>(to, width, tensor, [&](int a) {
    return at.first + a < in.queries ? line_of_query(tensor, width, in, at, a) : nullptr;
  });
}
// Copies features [first, first + size) of the keys or values of a tile. Those that nobody sees count as zero.
template <int kWidth>
__device__ inline void copy_keys(const SharedLines<kWidth>& to, const bfloat16* tensor, int width, int first, int size,
                                 const BlockMemory& blocks, const BlocksInBf16& in, const QueryTile& at,
                                 const KeyTile& tile) {
  copy_lines<kMmaTile>(to, size, tensor, [&](int c) {
    const bool there = blocks.keys[c] >= 0;
    return there ? line_of_key(tensor, width, in, at.row, at.kv_head, tile.begin + c) + first : nullptr;
  });
}

template <int kWidth>
__device__ inline void multiply_tile(TileSums& sums, const SharedLines<kWidth>& x, const SharedLines<kWidth>& y,
                                     int size) {
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) sums[0][n] = {};
  multiply_lines(sums, x, warp_of_block() * kMmaRows, y, 0, size);
}
// Computes the logits of a tile, in powers of 2.
template <int kWidth>
__device__ inline void multiply_logits(TileSums& logits, const SharedLines<kWidth>& queries,
                                       const SharedLines<kWidth>& keys, const BlocksInBf16& in) {
  multiply_tile(logits, queries, keys, in.size);
  const float scale = in.scale * kLog2E;
#pragma unroll
  for (int n = 0; n < kTileColumns; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) logits[0][n].x[i] *= scale;
  }
}

// The shared memory of a thread block. It has dout in the backward pass (kBackward), and weights and gradients of
// logits by query and key where sums over queries need them (kPairs).
template <int kWidth, bool kBackward, bool kPairs>
struct BlockLines {
  static constexpr int kLines = (kBackward ? 4 : 3) * kMmaTile;
  static constexpr int kPairValues = kPairs ? 2 * kMmaTile * kMmaTile : 0;

  SharedLines<kWidth> queries, keys, values, douts;
  SharedLines<kMmaTile> weights, gradients;
  BlockMasks& masks;
  BlockMemory& blocks;

  static constexpr size_t bytes() {
    return (kLines * kWidth + kPairValues) * sizeof(bfloat16) + sizeof(BlockMasks) + sizeof(BlockMemory);
  }

  __device__ BlockLines() : masks(*sets()), blocks(*reinterpret_cast<BlockMemory*>(sets() + 1)) {
    queries = {dynamic_shared<bfloat16>()};
    keys = {queries.begin + kMmaTile * kWidth};
    values = {keys.begin + kMmaTile * kWidth};
    douts = {values.begin + kMmaTile * kWidth};
    weights = {queries.begin + kLines * kWidth};
    gradients = {weights.begin + kMmaTile * kMmaTile};
  }

 private:
  static __device__ BlockMasks* sets() {
    return reinterpret_cast<BlockMasks*>(dynamic_shared<bfloat16>() + kLines * kWidth + kPairValues);
  }
};

// Computes the softmax of both of a lane's rows over all tiles of a long block. Queries, and dout if kGradients, lie in
// shared memory. It ends without a barrier; one must come before the next tile's keys, as in is_visible.
template <bool kGradients, typename Memory>
__device__ inline void softmax_of_long_block(BlockSoftmax<float> (&lines)[2], const Memory& memory,
                                             const BlocksInBf16& in, const QueryTile& at, const KeyTile& tile) {
  for (BlockSoftmax<float>& line : lines) line = BlockSoftmax<float>();
  KeyTile part = tile;
  for (part.begin = tile.block_begin; part.begin < tile.block_end; part.begin += kTile) {
    part.end = part.begin + kTile < tile.block_end ? part.begin + kTile : tile.block_end;
    prepare_keys(memory.blocks, in, at.row, part);
    copy_keys(memory.keys, in.k, in.size, 0, in.size, memory.blocks, in, at, part);
    if constexpr (kGradients) {
      copy_keys(memory.values, in.v, in.value_size, 0, in.value_size, memory.blocks, in, at, part);
    }
    memory.masks.cut(memory.blocks, part);
    await_copies();
    __syncthreads();
    TileSums logits;
    TileSums dw;
    multiply_logits(logits, memory.queries, memory.keys, in);
    if constexpr (kGradients) multiply_tile(dw, memory.douts, memory.values, in.value_size);
#pragma unroll
    for (int half = 0; half < 2; ++half) take_block<kGradients>(lines[half], memory.masks, 0, logits, dw, half);
  }
  for (BlockSoftmax<float>& line : lines) line.finish(false, log2f(line.sum));
}

// Says whether tensor cores take the call: bf16, lines of whole chunks of 8 features at multiples of 16 bytes, and keys
// (in the backward pass values, too) of at most 128 features. Other calls go to the other kernels.
bool suits_tensor_cores(const Tensor& out, const ops::BlockAttentionInputs& in, const BlockSizes& sizes);
bool backward_suits_tensor_cores(const ops::BlockAttentionGradients& gradients, const Tensor& dout,
                                 const ops::BlockAttentionInputs& in, const BlockSizes& sizes);
void blocks_on_tensor_cores(const Tensor& out, const Tensor& lse, const BlocksInBf16& in);
// The first pass stores for the second one the softmax within each long block, which depends on several tiles.
void query_gradient_on_tensor_cores(const Tensor& dq, const BlocksInBf16& in, const BlockBackward<bfloat16>& back);
void key_gradient_on_tensor_cores(const Tensor& dk, const Tensor& dv, const BlocksInBf16& in,
                                  const BlockBackward<bfloat16>& back);

}  // namespace quire::cuda
