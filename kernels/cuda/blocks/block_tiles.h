// Code that the kernels of attention to blocks share: the operands of a call, tiles of keys with whole blocks or a part
// of a long one, and which query sees which key in a tile of pairs (tiles.h).
//
// The keys of a row are cut into tiles on the device (block_tiles.cu), since blocks may have any length and may begin
// anywhere in a row. A tile has at most 64 keys: consecutive whole blocks or, of a block with more keys than that, 64
// in a row. The softmax within a whole block is computed in registers of the 16 threads of a query. That of a long
// block needs all of its tiles.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/random.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

// Keys [begin, end) of a row form a tile; an absent tile begins at the number of keys. Keys that nobody sees count as a
// block.
struct KeyTile {
  int begin, end;
  int block_begin, block_end;  // of a long block; otherwise begin and end
  int low, high;               // the smallest and the largest number of a block; high: -1 without any
  int line;                    // which long block of the row this is

  __device__ bool is_part() const { return block_end - block_begin > kTile; }
};
static_assert(sizeof(KeyTile) == kKeyTileNumbers * sizeof(int32_t) && kGpuTile == kTile);

// Cuts the keys of all rows into the tiles of BlockScratch.
void cut_blocks(const Tensor& tiles, const Tensor& block);

template <typename T>
struct BlockOperands {
  using A = Wide<T>;
  const T *q, *k, *v;
  const int32_t *block, *first;
  const uint8_t* landmark;
  const KeyTile* tiles;  // [R, max_tiles]
  int max_tiles;
  int rows, queries, keys, heads, kv_heads, size, value_size;
  A scale;
  bool gates;  // landmarks are gates
  bool own_block, empty_blocks_count;
  bool quads, value_quads;  // as in AttentionOperands
  bool dropout;
  uint64_t threshold;
  A kept;
  RandomKey key;
  uint32_t scope, first_row;

  __device__ int before() const { return keys - queries; }
};

template <typename T>
BlockOperands<T> operands_of(const ops::BlockAttentionInputs& in, const BlockSizes& s, const BlockScratch& scratch) {
  using A = Wide<T>;
  BlockOperands<T> to{};
  to.q = in.q.data<T>();
  to.k = in.k.data<T>();
  to.v = in.v.data<T>();
  to.block = in.block.data<int32_t>();
  to.first = in.first.data<int32_t>();
  to.landmark = data_or_null<uint8_t>(in.landmark);
  to.tiles = static_cast<const KeyTile*>(scratch.tiles.raw());
  to.max_tiles = static_cast<int>(scratch.tiles.dim(1));
  to.rows = static_cast<int>(s.rows);
  to.queries = static_cast<int>(s.queries);
  to.keys = static_cast<int>(s.keys);
  to.heads = static_cast<int>(s.heads);
  to.kv_heads = static_cast<int>(s.kv_heads);
  to.size = static_cast<int>(s.size);
  to.value_size = static_cast<int>(s.value_size);
  to.scale = static_cast<A>(in.scale);
  to.gates = in.landmark.defined() && in.grouped;
  to.own_block = in.own_block;
  to.empty_blocks_count = in.empty_blocks_count;
  to.quads = in_quads<T>(s.size, {&in.q, &in.k});
  to.value_quads = in_quads<T>(s.value_size, {&in.v});
  to.dropout = in.dropout > 0;
  to.threshold = static_cast<uint64_t>(in.dropout * 4294967296.0);
  to.kept = static_cast<A>(1.0 / (1.0 - in.dropout));
  to.key = in.key;
  to.scope = in.scope;
  to.first_row = static_cast<uint32_t>(in.first_row);
  return to;
}

// Names a row, a head of it and the first of 64 queries.
struct QueryTile {
  int row, head, kv_head, first;
};

template <typename Pointer, typename T>
__device__ inline Pointer line_of_query(Pointer tensor, int width, const BlockOperands<T>& in, const QueryTile& at,
                                        int a) {
  return tensor + ((static_cast<int64_t>(at.row) * in.queries + at.first + a) * in.heads + at.head) * width;
}
template <typename Pointer, typename T>
__device__ inline Pointer line_of_key(Pointer tensor, int width, const BlockOperands<T>& in, int row, int kv_head,
                                      int key) {
  return tensor + ((static_cast<int64_t>(row) * in.keys + key) * in.kv_heads + kv_head) * width;
}
// Returns the index of query a in [R, H, T].
template <typename T>
__device__ inline int64_t lse_of(const BlockOperands<T>& in, const QueryTile& at, int a) {
  return (static_cast<int64_t>(at.row) * in.heads + at.head) * in.queries + at.first + a;
}

// Returns the last query's position among the keys.
template <typename T>
__device__ inline int last_place(const BlockOperands<T>& in, const QueryTile& at) {
  return in.before() + (at.first + kTile < in.queries ? at.first + kTile : in.queries) - 1;
}
// Says whether the softmax within a long block is needed: some query comes after it.
template <typename T>
__device__ inline bool needs_long_block(const BlockOperands<T>& in, const QueryTile& at, const KeyTile& tile) {
  return in.gates && tile.is_part() && tile.block_end <= last_place(in, at);
}

// Holds, in shared memory, the blocks of a tile and which of them its queries see.
struct BlockMemory {
  static constexpr int kLandmark = kTile;  // added to the number of a landmark's block
  unsigned starts[2];                      // bit c: key c begins a block
  unsigned regular[2];                     // bit c: key c is regular
  unsigned marked[2];                      // bit c: key c is a landmark
  int keys[kTile];                         // the block of a key, counted within the tile; -1: nobody sees the key
  int numbers[kTile];                      // of the tile's blocks
  bool open[kTile];                        // later queries may see the block
  bool empty[kTile];                       // the block is a landmark alone
  uint64_t seen[kTile];                    // bit g: the query sees block g of the tile
  uint64_t kept[kTile];                    // bit g: dropout keeps its share
  int own[kTile];                          // the query's own block within the tile; -1: elsewhere
  bool any_visible[kThreads / kWarp];

  __device__ int regular_block(int c) const { return keys[c] < kLandmark ? keys[c] : -1; }
  __device__ int landmark_block(int c) const { return keys[c] >= kLandmark ? keys[c] - kLandmark : -1; }
  // Says whether the query sees block g and it is not its own block.
  __device__ bool is_earlier(int a, int g) const { return (seen[a] >> g) % 2 != 0 && own[a] != g; }
  // Says the same of either of the two queries that a warp has side by side.
  __device__ bool is_earlier_for_warp(int a, int g) const { return is_earlier(a, g) || is_earlier(a ^ 1, g); }
  // Says whether key c of the tile is regular and the query sees it. `place` is the query's position, counted from the
  // tile's first key.
  __device__ bool sees(int a, int c, int place) const {
    const int g = regular_block(c);
    return g >= 0 && (seen[a] >> g) % 2 != 0 && (own[a] != g || c <= place);
  }
  // Returns the factor by which dropout multiplies the share of block g.
  template <typename T>
  __device__ Wide<T> share(const BlockOperands<T>& in, int a, int g) const {
    if (!in.dropout || own[a] == g) return 1;
    return (kept[a] >> g) % 2 != 0 ? in.kept : 0;
  }
};

// Says whether any of the queries may see a block of the tile, with the same answer in all threads. It begins and ends
// with barriers.
template <typename T>
__device__ inline bool is_visible(BlockMemory& memory, const BlockOperands<T>& in, const QueryTile& at,
                                  const KeyTile& tile) {
  const int a = static_cast<int>(threadIdx.x);
  bool visible = false;
  if (a < kTile && at.first + a < in.queries) {
    const int own = in.block[static_cast<int64_t>(at.row) * in.keys + in.before() + at.first + a];
    const int first = in.first[static_cast<int64_t>(at.row) * in.queries + at.first + a];
    visible = own >= 0 && first <= own && first <= tile.high && tile.low <= own;
  }
  const bool any = __any_sync(kAllLanes, visible);
  if (threadIdx.x % kWarp == 0) memory.any_visible[threadIdx.x / kWarp] = any;
  __syncthreads();
  const bool result = memory.any_visible[0] || memory.any_visible[1];
  __syncthreads();
  return result;
}

// Finds the blocks of a tile and returns their number. It passes a barrier before it overwrites the data of earlier
// tiles, and another at the end.
template <typename T>
__device__ inline int prepare_keys(BlockMemory& memory, const BlockOperands<T>& in, int row, const KeyTile& tile) {
  const int c = static_cast<int>(threadIdx.x);
  const int key = tile.begin + c;
  const bool there = c < kTile && key < tile.end;
  const int32_t* const numbers = in.block + static_cast<int64_t>(row) * in.keys;
  const uint8_t* const landmark = in.landmark == nullptr ? nullptr : in.landmark + static_cast<int64_t>(row) * in.keys;
  const int number = there ? numbers[key] : -1;
  const bool starts = there && (c == 0 || numbers[key - 1] != number);
  const bool ends = there && (tile.is_part() ? c == 0 : key + 1 == tile.end || numbers[key + 1] != number);
  const bool marked = there && landmark != nullptr && landmark[key] != 0;
  const unsigned start_bits = __ballot_sync(kAllLanes, starts);
  const unsigned regular_bits = __ballot_sync(kAllLanes, there && number >= 0 && !marked);
  const unsigned marked_bits = __ballot_sync(kAllLanes, there && number >= 0 && marked);
  if (c < kTile && c % kWarp == 0) {
    memory.starts[c / kWarp] = start_bits;
    memory.regular[c / kWarp] = regular_bits;
    memory.marked[c / kWarp] = marked_bits;
  }
  __syncthreads();
  const int in_first = __popc(memory.starts[0]);
  const int count = in_first + __popc(memory.starts[1]);
  if (c < kTile) {
    const unsigned upto = ~0U >> (kWarp - 1 - c % kWarp);
    const int g = (c < kWarp ? 0 : in_first) + __popc(memory.starts[c / kWarp] & upto) - 1;
    memory.keys[c] = !there || number < 0 ? -1 : (marked ? g + BlockMemory::kLandmark : g);
    if (starts) memory.numbers[g] = number;
    if (ends) {
      memory.open[g] = landmark == nullptr || landmark[tile.is_part() ? tile.block_end - 1 : key] == 1;
      memory.empty[g] = starts && marked && !tile.is_part();
    }
  }
  __syncthreads();
  return count;
}

// Finds which of the tile's blocks the queries see. A barrier must come before that is read.
template <typename T>
__device__ inline void prepare_queries(BlockMemory& memory, const BlockOperands<T>& in, const QueryTile& at,
                                       int blocks) {
  const int a = static_cast<int>(threadIdx.x);
  if (a >= kTile) return;
  memory.seen[a] = 0;
  memory.kept[a] = 0;
  memory.own[a] = -1;
  if (at.first + a >= in.queries) return;
  const int own = in.block[static_cast<int64_t>(at.row) * in.keys + in.before() + at.first + a];
  const int first = in.first[static_cast<int64_t>(at.row) * in.queries + at.first + a];
  if (own < 0) return;
  uint64_t seen = 0;
  uint64_t kept = 0;
  for (int g = 0; g < blocks; ++g) {
    const int number = memory.numbers[g];
    bool sees = number >= 0 && number >= first;
    if (number == own) {
      memory.own[a] = g;
      sees = sees && in.own_block;
    } else {
      sees = sees && number < own && memory.open[g];
      if (memory.empty[g] && !in.empty_blocks_count) sees = false;
    }
    if (sees) seen |= uint64_t{1} << g;
    if (!sees || !in.dropout) continue;
    const auto element = static_cast<uint64_t>(static_cast<int64_t>(at.head) * in.keys + number);
    const auto bits = philox(in.key, in.scope, in.first_row + static_cast<uint32_t>(at.row),
                             static_cast<uint32_t>(at.first + a), static_cast<uint32_t>(element / 4));
    if (of_group(bits, static_cast<uint32_t>(element % 4)) >= in.threshold) kept |= uint64_t{1} << g;
  }
  memory.seen[a] = seen;
  memory.kept[a] = kept;
}

}  // namespace quire::cuda
