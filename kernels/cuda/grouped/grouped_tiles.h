// Code that the kernels of grouped cross-attention share: the operands of a call, tiles of queries that read one list,
// and the logits of a tile of pairs (tiles.h).
//
// The lists of queries are known on the device only, so the queries are cut into tiles there (grouped_tiles.cu). A tile
// has at most 64 queries; it goes over the chunks of its list one after the other, 64 keys at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cuda/attention/attention_softmax.h"
#include "kernels/cuda/tiles.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

// A tile of queries of a row that read one list.
struct ListTile {
  int row, list, first, count;
};

// Fills the scratch with the ranges of queries that read each list, and with tiles of at least 64 of their queries.
void cut_queries(const GroupedScratch& scratch, const Tensor& list, int of_tile = kTile);
// Fills the scratch with the entries of all lists, sorted by the chunk that they name; those of one chunk stay in
// order.
void sort_entries(const GroupedBackwardScratch& scratch, const ops::GroupedCrossAttentionInputs& in);

// T is the type of queries, S that of stored keys and values.
template <typename T, typename S>
struct GroupedOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const A* weight;
  const int32_t *chosen, *tiles, *ranges;
  int max_tiles;
  int rows, queries, heads, kv_heads, size, value_size, chunks, length, lists, top_k;
  A scale;
  bool softmax_one;
  bool quads, value_quads;                // of q and dq, of out and dout; as in AttentionOperands
  bool stored_quads, stored_value_quads;  // of keys and dkeys, of values and dvalues

  // Returns the n-th tile of all rows; an absent tile has no queries.
  __device__ ListTile tile(int n) const {
    const int32_t* const from = tiles + static_cast<int64_t>(n) * kListTileNumbers;
    return {n / max_tiles, from[0], from[1], from[2]};
  }
  __device__ int64_t entry_of(const ListTile& at, int n) const {
    return (static_cast<int64_t>(at.row) * lists + at.list) * top_k + n;
  }
  // Returns an entry's chunk. It is -1 when there is none, or when the chunk does not exist, which the host cannot
  // check.
  __device__ int chunk_of(int64_t entry) const {
    const int chunk = chosen[entry];
    return chunk >= 0 && chunk < chunks ? chunk : -1;
  }
  // Returns the index of query a and entry n in [R, H, T, K].
  __device__ int64_t lse_of(const ListTile& at, int head, int a, int n) const {
    return ((static_cast<int64_t>(at.row) * heads + head) * queries + at.first + a) * top_k + n;
  }
  template <typename Pointer>
  __device__ Pointer line_of_query(Pointer tensor, int width, const ListTile& at, int head, int a) const {
    return tensor + ((static_cast<int64_t>(at.row) * queries + at.first + a) * heads + head) * width;
  }
  template <typename Pointer>
  __device__ Pointer line_of_key(Pointer tensor, int width, int chunk, int kv_head, int key) const {
    return tensor + ((static_cast<int64_t>(chunk) * length + key) * kv_heads + kv_head) * width;
  }
};

template <typename T, typename S>
GroupedOperands<T, S> operands_of(const ops::GroupedCrossAttentionInputs& in, const GroupedSizes& s,
                                  const GroupedScratch& scratch) {
  GroupedOperands<T, S> to{};
  to.q = in.q.data<T>();
  to.keys = in.keys.data<S>();
  to.values = in.values.data<S>();
  to.weight = in.weight.data<Wide<T>>();
  to.chosen = in.chosen.data<int32_t>();
  to.tiles = scratch.tiles.data<int32_t>();
  to.ranges = scratch.ranges.data<int32_t>();
  to.max_tiles = static_cast<int>(scratch.tiles.dim(1));
  to.rows = static_cast<int>(s.rows);
  to.queries = static_cast<int>(s.queries);
  to.heads = static_cast<int>(s.heads);
  to.kv_heads = static_cast<int>(s.kv_heads);
  to.size = static_cast<int>(s.size);
  to.value_size = static_cast<int>(s.value_size);
  to.chunks = static_cast<int>(s.chunks);
  to.length = static_cast<int>(s.length);
  to.lists = static_cast<int>(s.lists);
  to.top_k = static_cast<int>(s.chosen);
  to.scale = static_cast<Wide<T>>(in.scale);
  to.softmax_one = in.softmax_one;
  to.quads = in_quads<T>(s.size, {&in.q});
  to.stored_quads = in_quads<S>(s.size, {&in.keys});
  to.stored_value_quads = in_quads<S>(s.value_size, {&in.values});
  return to;
}

// Holds the operands that only the backward kernels need.
template <typename T>
struct GroupedBackward {
  using A = Wide<T>;
  const T* dout;
  const A* lse;
  A* delta;                 // [R, H, T, K]: D
  const int32_t* of_chunk;  // the chunks of all entries, sorted
  const int32_t* of_entry;  // the entries themselves
  int64_t entries;
};

// Returns the first of the sorted entries whose chunk is not below `chunk`.
template <typename T>
__device__ inline int64_t first_entry(const GroupedBackward<T>& back, int chunk) {
  int64_t low = 0;
  int64_t high = back.entries;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (back.of_chunk[middle] < chunk) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Calls function(T{}, S{}) with the types of queries and of stored keys and values.
template <typename Function>
void dispatch_stored(const ops::GroupedCrossAttentionInputs& in, Function&& function) {
  dispatch(in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    if constexpr (!std::is_same_v<decltype(type), bfloat16>) function(type, bfloat16{});
  });
}

// Loads quads for tiles of pairs, with zeros behind the last query of a tile and the last key of a chunk.
template <typename T, typename S>
struct GroupedLoads {
  using A = Wide<T>;
  const GroupedOperands<T, S>& in;
  const ListTile& at;
  int head, kv_head, chunk;

  // Returns scale * q for four features of query a.
  __device__ Quad<A> query(int a, int f) const {
    const bool there = a < at.count;
    Quad<A> to = load_quad(there ? in.line_of_query(in.q, in.size, at, head, a) : nullptr, f, in.size, in.quads);
    for (int i = 0; i < kQuad; ++i) to.x[i] *= in.scale;
    return to;
  }
  __device__ Quad<A> gradient(const T* dout, int a, int f) const {
    const bool there = a < at.count;
    return load_quad(there ? in.line_of_query(dout, in.value_size, at, head, a) : nullptr, f, in.value_size,
                     in.value_quads);
  }
  __device__ Quad<A> key(int j, int f) const { return stored(in.keys, in.size, in.stored_quads, j, f); }
  __device__ Quad<A> value(int j, int f) const { return stored(in.values, in.value_size, in.stored_value_quads, j, f); }

 private:
  __device__ Quad<A> stored(const S* tensor, int width, bool quads, int j, int f) const {
    const bool there = j < in.length;
    const Quad<Wide<S>> from =
        load_quad(there ? in.line_of_key(tensor, width, chunk, kv_head, j) : nullptr, f, width, quads);
    Quad<A> to;
    for (int i = 0; i < kQuad; ++i) to.x[i] = static_cast<A>(from.x[i]);
    return to;
  }
};

}  // namespace quire::cuda
