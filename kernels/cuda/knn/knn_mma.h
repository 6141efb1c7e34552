// Code that the kernels searching an external memory in bf16 on tensor cores share. A block of four warps has 64 or 128
// queries that read one key head, of which a warp has 16 or 32 as fragments in registers for the whole pass. Tiles of
// 64 keys pass through shared memory, where keys of 8 bits become bf16, exactly; the factor of a key multiplies its
// scores.
//
// A block goes over positions. They are entries, from the oldest one on, or, in a piece of a memory that is copied from
// the host, slots.
#pragma once

#include "kernels/cuda/attention/attention_mma.h"
#include "kernels/cuda/knn/knn_memory.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

static_assert(kMmaTile == kGpuTile);

// Runs an exact or bucketed search, for which scratch.tensor_cores is set, and writes index and score [parts, R, T, H,
// K].
void search_on_tensor_cores(const SearchScratch& scratch, int32_t* index, float* score, const Tensor& q,
                            const ops::KnnMemory& memory, const KnnSizes& sizes, bool bucketed);

// A warp multiplies this many keys at once: four columns of fragments.
inline constexpr int kSearchColumns = 4;
inline constexpr int kSearchKeys = kSearchColumns * kMmaColumns;

template <typename S>
struct MmaSearch {
  static constexpr bool kConverted = !std::is_same_v<S, bfloat16>;

  const bfloat16* q;
  const S* keys;          // [R, stored, Hk, D]
  const bfloat16* scale;  // [R, stored, Hk], of 8 bits
  const int32_t *head, *length;
  int32_t* index;  // [parts, R, T, H, K]
  float* score;
  float* best_score;  // [blocks, queries, K], where they do not fit into shared memory
  int32_t* best_entry;
  int rows, queries, heads, kv_heads, size, top_k, tiles, parts;
  int slots;       // of the memory
  int stored;      // slots in a row of keys: the memory's, or those of a piece
  int first_slot;  // of the piece
  bool is_piece;   // positions are slots
  bool is_next;    // index and score hold the best of the pieces before
};

// Describes the queries and positions of a block.
template <typename S>
struct SearchPlace {
  int row, kv_head, group, first_query, count;  // among `count` lines of queries of a row and key head
  int begin, end;                               // positions
  int length, entry_shift, slot_shift, slots;
  int wrap;  // from this position on entries begin again at the oldest one
  const S* keys;
  const bfloat16* scale;
  int stride;  // of slots

  template <int kQueries>
  static __device__ SearchPlace of(const MmaSearch<S>& in) {
    SearchPlace at;
    const int block = static_cast<int>(blockIdx.x);
    const int part = block % in.parts;
    const int head = block / in.parts / in.tiles;
    at.row = head / in.kv_heads;
    at.kv_head = head % in.kv_heads;
    at.group = in.heads / in.kv_heads;
    at.first_query = block / in.parts % in.tiles * kQueries;
    at.count = in.queries * at.group;
    at.slots = in.slots;
    const int given = in.length[at.row];
    at.length = given < 0 ? 0 : given > in.slots ? in.slots : given;
    const int64_t from = (static_cast<int64_t>(in.head[at.row]) - at.length) % (in.slots > 0 ? in.slots : 1);
    const int oldest = static_cast<int>(from < 0 ? from + in.slots : from);  // its slot
    const int left = in.slots - in.first_slot;
    const int64_t positions = !in.is_piece ? at.length : in.stored < left ? in.stored : left;
    at.begin = static_cast<int>(positions * part / in.parts);
    at.end = static_cast<int>(positions * (part + 1) / in.parts);
    at.entry_shift = in.is_piece ? in.first_slot - oldest : 0;
    at.slot_shift = in.is_piece ? 0 : oldest;
    at.wrap = in.is_piece ? -at.entry_shift : in.slots;
    const int64_t first = static_cast<int64_t>(at.row) * in.stored * in.kv_heads + at.kv_head;
    at.keys = in.keys + first * in.size;
    at.scale = in.scale == nullptr ? nullptr : in.scale + first;
    at.stride = in.kv_heads;
    return at;
  }

  // Returns the entry at a position; it is at least `length` where there is none.
  __device__ int entry_of(int position) const {
    const int entry = position + entry_shift;
    return entry < 0 ? entry + slots : entry;
  }
  __device__ bool has(int position) const { return position < end && entry_of(position) < length; }
  // Says whether all keys of the tile exist, in consecutive slots. That is so in most tiles.
  __device__ bool is_run(int position) const {
    const int last = position + kMmaTile - 1;
    return has(position) && has(last) && entry_of(last) - entry_of(position) == kMmaTile - 1 &&
           (position + slot_shift < slots) == (last + slot_shift < slots);
  }
  // Returns the offset of a line of keys or scales, for a position below `end`.
  __device__ int64_t vector_of(int position) const {
    const int slot = position + slot_shift;
    return static_cast<int64_t>(slot < slots ? slot : slot - slots) * stride;
  }
  // Returns the line of a query in [R, T, H].
  __device__ int64_t line_of_query(const MmaSearch<S>& in, int query) const {
    const int n = first_query + query;
    return (static_cast<int64_t>(row) * in.queries + n / group) * in.heads + kv_head * group + n % group;
  }
  // Returns the line of a query in the results of the block's part.
  __device__ int64_t line_of_result(const MmaSearch<S>& in, int query) const {
    const int part = static_cast<int>(blockIdx.x) % in.parts;
    return static_cast<int64_t>(part) * in.rows * in.queries * in.heads + line_of_query(in, query);
  }
  __device__ bool has_query(int query) const { return first_query + query < count; }
};

// Converts eight stored numbers to bf16.
template <typename S>
__device__ inline Words as_bf16(const EightBytes& from) {
  Words to;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const uint32_t both = from.x[n / 2] >> (n % 2 * 16);
    to.x[n] = packed(from_byte<S>(both & 0xffU), from_byte<S>(both >> 8 & 0xffU));
  }
  return to;
}

// Tiles of keys in shared memory. fetch() begins to copy a tile while the one before is in use; take() makes it the
// current one.
template <int kWidth, typename S>
struct KeyTiles {
  static constexpr bool kConverted = MmaSearch<S>::kConverted;
  static constexpr int kLine = kMmaTile * kWidth;  // values of a tile

  bfloat16* begin;  // a tile, and the next one in bf16 or as it is stored
  float* factors;   // [64]
  float factor;     // of this thread's key in the next tile
  int number;       // of tiles that were fetched

  __device__ S* raw() const { return reinterpret_cast<S*>(begin + kLine); }
  __device__ SharedLines<kWidth> lines() const { return {begin + (kConverted || number % 2 != 0 ? 0 : kLine)}; }

  __device__ void fetch(const MmaSearch<S>& in, const SearchPlace<S>& at, int first) {
    constexpr int kCopied = 16 / static_cast<int>(sizeof(S));  // values
    constexpr int kChunks = kWidth / kCopied;
    constexpr int kStep = kMmaThreads / kChunks;  // lines
    static_assert(kStep % 8 == 0);
    const int line = static_cast<int>(threadIdx.x) / kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const bool inside = chunk * kCopied < in.size;
    S* to = raw() + line * kWidth + chunk * kCopied;
    if constexpr (!kConverted) to = SharedLines<kWidth>{begin + number % 2 * kLine}.chunk(line, chunk);
    if (at.is_run(first)) {
      const S* from = at.keys + at.vector_of(first + line) * in.size + chunk * kCopied;
      const int64_t step = static_cast<int64_t>(kStep) * at.stride * in.size;
#pragma unroll
      for (int n = 0; n < kMmaTile; n += kStep) {
        copy_later(to + n * kWidth, inside ? from : at.keys, inside);
        from += step;
      }
    } else {
      for (int n = 0; n < kMmaTile; n += kStep) {
        const bool there = inside && at.has(first + line + n);
        const int64_t from = there ? at.vector_of(first + line + n) * in.size + chunk * kCopied : 0;
        copy_later(to + n * kWidth, at.keys + from, there);
      }
    }
    if constexpr (kConverted) {
      const int key = first + static_cast<int>(threadIdx.x);
      const bool there = threadIdx.x < kMmaTile && at.has(key);
      factor = there ? static_cast<float>(at.scale[at.vector_of(key)]) : 0.0F;
    }
    ++number;
  }
  // Waits for the copied tile. After it no thread reads the previous tile any more.
  __device__ void take() {
    await_copies();
    __syncthreads();
    if constexpr (kConverted) {
      constexpr int kChunk = SharedLines<kWidth>::kChunk;
      constexpr int kChunks = kWidth / kChunk;
      for (int item = static_cast<int>(threadIdx.x); item < kMmaTile * kChunks; item += kMmaThreads) {
        const int line = item / kChunks;
        const int chunk = item % kChunks;
        const auto from = *reinterpret_cast<const EightBytes*>(raw() + line * kWidth + chunk * kChunk);
        *reinterpret_cast<Words*>(lines().chunk(line, chunk)) = as_bf16<S>(from);
      }
      if (threadIdx.x < kMmaTile) factors[threadIdx.x] = factor;
      __syncthreads();
    }
  }
};

// Loads the block's queries as fragments of the left matrix, for each warp 16 of each 64. They pass through `room`,
// which is free again afterwards.
template <int kWidth, int kTiles, typename S>
__device__ inline void load_query_fragments(LeftFragment (&to)[kTiles][kWidth / kMmaDepth], bfloat16* room,
                                            const MmaSearch<S>& in, const SearchPlace<S>& at) {
  const SharedLines<kWidth> lines{room};
  copy_lines<kTiles * kMmaTile>(lines, in.size, in.q, [&](int query) {
    return at.has_query(query) ? in.q + at.line_of_query(in, query) * in.size : nullptr;
  });
  await_copies();
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int step = 0; step < kWidth / kMmaDepth; ++step) {
      to[t][step] = lines.left(t * kMmaTile + warp_of_block() * kMmaRows, step * kMmaDepth);
    }
  }
  __syncthreads();
}

// Computes scores of the warp's queries and keys first_key..+31 of a tile.
template <int kWidth, int kTiles, typename S>
__device__ inline void score_keys(SumFragment (&scores)[kTiles][kSearchColumns],
                                  const LeftFragment (&queries)[kTiles][kWidth / kMmaDepth],
                                  const KeyTiles<kWidth, S>& tiles, const SharedLines<kWidth>& keys, int first_key,
                                  int size) {
#pragma unroll
  for (int step = 0; step < kWidth / kMmaDepth; ++step) {
    if (step * kMmaDepth >= size) break;
#pragma unroll
    for (int n = 0; n < kSearchColumns; n += 2) {
      RightFragment right[2];
      keys.right(right, first_key + n * kMmaColumns, step * kMmaDepth);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        multiply_add(scores[t][n], queries[t][step], right[0]);
        multiply_add(scores[t][n + 1], queries[t][step], right[1]);
      }
    }
  }
  if constexpr (MmaSearch<S>::kConverted) {
#pragma unroll
    for (int n = 0; n < kSearchColumns; ++n) {
      const auto factors =
          *reinterpret_cast<const TwoSums*>(tiles.factors + first_key + n * kMmaColumns + column_of_sum(0));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) scores[t][n].x[i] *= factors.x[i % 2];
      }
    }
  }
}

// Calls function with the width of heads in shared memory and the tiles of 64 queries of a block, as constants.
template <typename S, typename Function>
void with_sizes(const MmaSearch<S>& in, const SearchScratch& scratch, Function&& function) {
  const auto with_width = [&](auto width) {
    if (scratch.queries > kMmaTile) return function(width, std::integral_constant<int, 2>{});
    function(width, std::integral_constant<int, 1>{});
  };
  if (in.size <= 64) return with_width(std::integral_constant<int, 64>{});
  with_width(std::integral_constant<int, 128>{});
}
// Returns the bytes of shared memory; `best` is the number of entries of a query that lie there.
template <typename S>
size_t bytes_of_search(int width, int tiles, int64_t best, bool bucketed) {
  return static_cast<size_t>(
      SearchScratch::bytes_on_tensor_cores(width, dtype_of<S>(), tiles * kMmaTile, best, bucketed));
}

// Search in.keys and write in.index and in.score.
template <typename S>
void search_exactly(const MmaSearch<S>& in, const SearchScratch& scratch);
template <typename S>
void search_buckets(const MmaSearch<S>& in, const SearchScratch& scratch);

}  // namespace quire::cuda
