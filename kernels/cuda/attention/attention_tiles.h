// Code that the attention kernels share: the operands of a call, and the logits and masks of its tiles of pairs
// (tiles.h).
//
// A tile pairs 64 queries either with 64 keys or with 64 distances. In the first kind the term of a pair belongs to one
// of 127 distances; in the second kind its key is one of 127. These 127 lines are called a band. The pairs of a thread
// lie on 7 diagonals: it reads 7 lines of the band where it reads 4 of an ordinary operand, and it computes nothing for
// pairs that do not exist.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/random.h"
#include "kernels/attention_sizes.h"
#include "kernels/cuda/tiles.h"

namespace quire::cuda {

// The operands of a call, as kernels get them.
template <typename T>
struct AttentionOperands {
  using A = Wide<T>;
  const T *q, *k, *v, *cache_k, *cache_v, *r;
  const A *bias, *u, *v_bias;
  const int32_t *cache_head, *first_visible, *last_visible;
  int rows, queries, heads, kv_heads, size, value_size, slots, entries;
  A scale;
  bool attend_self;
  bool table;  // bias or r; distances beyond it are not visible
  // Says whether four features may be read and written at once: quads for keys and queries, value_quads for values.
  bool quads, value_quads;
  // Dropout keeps a probability, times `kept`, when its 32 random bits are at least `threshold`.
  bool dropout;
  uint64_t threshold;
  int first_distance, distances;  // dropout numbers these distances for each head
  A kept;
  RandomKey key;
  uint32_t scope, first_row;
};

template <typename T>
AttentionOperands<T> operands_of(const ops::AttentionInputs& in, const AttentionSizes& s) {
  using A = Wide<T>;
  AttentionOperands<T> to{};
  to.q = in.q.data<T>();
  to.k = in.k.data<T>();
  to.v = in.v.data<T>();
  to.cache_k = data_or_null<T>(in.cache_k);
  to.cache_v = data_or_null<T>(in.cache_v);
  to.r = data_or_null<T>(in.r);
  to.bias = data_or_null<A>(in.bias);
  to.u = data_or_null<A>(in.u);
  to.v_bias = data_or_null<A>(in.v_bias);
  to.cache_head = data_or_null<int32_t>(in.cache_head);
  to.first_visible = in.first_visible.data<int32_t>();
  to.last_visible = data_or_null<int32_t>(in.last_visible);
  to.rows = static_cast<int>(s.rows);
  to.queries = static_cast<int>(s.queries);
  to.heads = static_cast<int>(s.heads);
  to.kv_heads = static_cast<int>(s.kv_heads);
  to.size = static_cast<int>(s.size);
  to.value_size = static_cast<int>(s.value_size);
  to.slots = static_cast<int>(s.slots);
  to.entries = static_cast<int>(s.entries);
  to.scale = static_cast<A>(in.scale);
  to.attend_self = in.attend_self;
  to.table = (in.bias.defined() || in.r.defined()) && !in.terms_end;
  to.quads = in_quads<T>(s.size, {&in.q, &in.k, &in.cache_k, &in.r});
  to.value_quads = in_quads<T>(s.value_size, {&in.v, &in.cache_v});
  to.dropout = in.dropout > 0;
  to.threshold = static_cast<uint64_t>(in.dropout * 4294967296.0);
  to.first_distance = static_cast<int>(s.first_distance);
  to.distances = static_cast<int>(s.distances);
  to.kept = static_cast<A>(1.0 / (1.0 - in.dropout));
  to.key = in.key;
  to.scope = in.scope;
  to.first_row = static_cast<uint32_t>(in.first_row);
  return to;
}

// Names a row and a head of it.
struct Place {
  int row, head, kv_head;
  int ring_head;  // slot of the next write
};

template <typename T>
__device__ inline Place place_of(const AttentionOperands<T>& in, int row, int head) {
  int ring_head = 0;
  if (in.slots > 0) {
    ring_head = in.cache_head[row] % in.slots;
    if (ring_head < 0) ring_head += in.slots;
  }
  return {row, head, head / (in.heads / in.kv_heads), ring_head};
}

// Returns the vector of a query in [R, T, H, width].
template <typename Pointer, typename T>
__device__ inline Pointer line_of_query(Pointer tensor, int width, const AttentionOperands<T>& in, const Place& at,
                                        int query) {
  return tensor + ((static_cast<int64_t>(at.row) * in.queries + query) * in.heads + at.head) * width;
}
// Returns the vector of a key at a position from -C to T - 1, in the segment or in the ring.
template <typename Pointer, typename T>
__device__ inline Pointer line_of_key(Pointer segment, Pointer ring, int width, const AttentionOperands<T>& in,
                                      const Place& at, int position) {
  if (position >= 0) {
    return segment + ((static_cast<int64_t>(at.row) * in.queries + position) * in.kv_heads + at.kv_head) * width;
  }
  int slot = at.ring_head + position;
  if (slot < 0) slot += in.slots;
  return ring + ((static_cast<int64_t>(at.row) * in.slots + slot) * in.kv_heads + at.kv_head) * width;
}
// Returns the vector of a distance in a table [N, H, D].
template <typename Pointer, typename T>
__device__ inline Pointer line_of_distance(Pointer table, const AttentionOperands<T>& in, const Place& at,
                                           int distance) {
  return table + (static_cast<int64_t>(in.entries - 1 - distance) * in.heads + at.head) * in.size;
}

// The queries of a tile see keys at positions low <= p < high that are at most `far` away.
struct VisibleRange {
  int low, high, far;
};

// Holds the distances that a query sees; farthest is below nearest when it sees nothing. Positions before the ring,
// positions behind the last key and distances beyond the table are not visible, whatever first_visible and last_visible
// say. Distances beyond the table are visible only where terms end before the visible keys do.
struct Distances {
  int nearest, farthest;
};
template <typename T>
__device__ inline Distances distances_of(const AttentionOperands<T>& in, int row, int query) {
  int near = in.attend_self ? 0 : 1;
  if (query >= in.queries) return {near, near - 1};
  const int64_t line = static_cast<int64_t>(row) * in.queries + query;
  if (in.last_visible != nullptr) {
    const int last = in.last_visible[line];
    near = query - (last < in.queries ? last : in.queries - 1);
  }
  const int first = in.first_visible[line];
  const int from = first < -in.slots ? -in.slots : first;
  int far = from > query - near ? near - 1 : query - from;
  if (in.table && far >= in.entries) far = in.entries - 1;
  return {near, far};
}

// Writes to nearest[a] and farthest[a] the distances that query a of a tile sees.
template <typename T>
__device__ inline void load_distances(int* nearest, int* farthest, const AttentionOperands<T>& in, int row,
                                      int first_query, int lines = kTile) {
  const int a = static_cast<int>(threadIdx.x);
  if (a >= lines) return;
  const Distances seen = distances_of(in, row, first_query + a);
  nearest[a] = seen.nearest;
  farthest[a] = seen.farthest;
}

// Returns the range that all queries of a tile see together, the same in every thread. Whole warps must call it.
__device__ inline VisibleRange visible_range(const int* nearest, const int* farthest, int slots, int first_query,
                                             int lines = kTile) {
  int low = first_query + lines;
  int high = -slots;
  int far = -1;
  for (int a = static_cast<int>(threadIdx.x) % kWarp; a < lines; a += kWarp) {
    if (farthest[a] < nearest[a]) continue;
    const int first = first_query + a - farthest[a];
    const int end = first_query + a - nearest[a] + 1;
    low = first < low ? first : low;
    high = end > high ? end : high;
    far = farthest[a] > far ? farthest[a] : far;
  }
  return {-warp_max(-low), warp_max(high), warp_max(far)};
}

// Returns the distance of pair (a, c). If c is a key, `origin` is the distance of pair (0, 0); otherwise c is itself a
// distance.
template <bool kByDistance>
__device__ inline int distance_of(int origin, int a, int c) {
  return kByDistance ? origin + c : origin + a - c;
}

// Returns the smallest distance of query a in a tile.
template <bool kByDistance>
__device__ inline int min_distance(int origin, int a) {
  return kByDistance ? origin : distance_of<false>(origin, a, kTile - 1);
}
// Returns the number of a distance's random number; visible distances have none below zero. 32-bit results wrap around.
template <typename Integer, typename T>
__device__ inline Integer random_number_of(const AttentionOperands<T>& in, const Place& at, int distance) {
  return static_cast<Integer>(at.head) * static_cast<Integer>(in.distances) + static_cast<Integer>(in.first_distance) +
         static_cast<Integer>(distance);
}

// Returns group g of query a of a tile: bit n says whether number n of the group is kept.
template <bool kByDistance, typename T>
__device__ inline MaskGroup mask_group(const AttentionOperands<T>& in, const Place& at, int first_query, int origin,
                                       int a, int g) {
  // The shift rounds down, for negative numbers too.
  const int64_t group = (random_number_of<int64_t>(in, at, min_distance<kByDistance>(origin, a)) >> 2) + g;
  const auto bits = philox(in.key, in.scope, in.first_row + static_cast<uint32_t>(at.row),
                           static_cast<uint32_t>(first_query + a), static_cast<uint32_t>(group));
  uint32_t kept = 0;
  for (uint32_t n = 0; n < 4; ++n) kept |= bits[n] >= in.threshold ? 1U << n : 0U;
  return static_cast<MaskGroup>(kept);
}
// Fills mask[a][g] for the 64 queries of a tile. The block may have any number of threads.
template <bool kByDistance, typename T>
__device__ inline void fill_mask(MaskGroup* mask, const AttentionOperands<T>& in, const Place& at, int first_query,
                                 int origin) {
  if (!in.dropout) return;
  for (int item = static_cast<int>(threadIdx.x); item < kTile * kMaskGroups; item += static_cast<int>(blockDim.x)) {
    mask[item] = mask_group<kByDistance>(in, at, first_query, origin, item / kMaskGroups, item % kMaskGroups);
  }
}
// Returns the factor of a probability: 0 where dropout drops it.
template <bool kByDistance, typename T>
__device__ inline Wide<T> kept(const MaskGroup* mask, const AttentionOperands<T>& in, const Place& at, int origin,
                               int a, int distance) {
  if (!in.dropout) return 1;
  // Numbers count from the first one of the query's first group, which hardly depends on the distance.
  const int min_distance_of_query = min_distance<kByDistance>(origin, a);
  const uint32_t number = random_number_of<uint32_t>(in, at, min_distance_of_query) % 4 +
                          static_cast<uint32_t>(distance - min_distance_of_query);
  const uint32_t group = mask[a * kMaskGroups + number / 4];
  return (group >> (number % 4)) % 2 != 0 ? in.kept : 0;
}

// Returns scale * (q + addend) for four features of a query; addend is u, v_bias or null.
template <typename T>
__device__ inline Quad<Wide<T>> load_query(const AttentionOperands<T>& in, const Wide<T>* addend, const Place& at,
                                           int query, int first) {
  Quad<Wide<T>> to{};
  if (query >= in.queries) return to;
  to = load_quad(line_of_query(in.q, in.size, in, at, query), first, in.size, in.quads);
  const Wide<T>* const added = addend == nullptr ? nullptr : addend + static_cast<int64_t>(at.head) * in.size;
  for (int i = 0; i < kQuad; ++i) {
    if (added != nullptr && first + i < in.size) to.x[i] += added[first + i];
    to.x[i] *= in.scale;
  }
  return to;
}
// Returns four features of a key. Positions outside [low, high) count as zero.
template <typename T>
__device__ inline Quad<Wide<T>> load_key(const AttentionOperands<T>& in, const Place& at, const VisibleRange& range,
                                         int position, int first) {
  const bool seen = position >= range.low && position < range.high;
  const T* const line = seen ? line_of_key(in.k, in.cache_k, in.size, in, at, position) : nullptr;
  return load_quad(line, first, in.size, in.quads);
}
template <typename T>
__device__ inline Quad<Wide<T>> load_value(const AttentionOperands<T>& in, const Place& at, const VisibleRange& range,
                                           int position, int first) {
  const bool seen = position >= range.low && position < range.high;
  const T* const line = seen ? line_of_key(in.v, in.cache_v, in.value_size, in, at, position) : nullptr;
  return load_quad(line, first, in.value_size, in.value_quads);
}
template <typename T>
__device__ inline Quad<Wide<T>> load_term(const AttentionOperands<T>& in, const Place& at, int distance, int first) {
  const bool there = distance >= 0 && distance < in.entries;
  return load_quad(there ? line_of_distance(in.r, in, at, distance) : nullptr, first, in.size, in.quads);
}

// Adds the products of a tile's logits to sums. It ends with a barrier; one must also stand between earlier reads of
// the operands' memory and this call.
template <bool kByDistance, typename T>
__device__ inline void add_logits(Pairs<Wide<T>>& sums, const TileMemory<Wide<T>>& memory,
                                  const AttentionOperands<T>& in, const Place& at, const VisibleRange& range,
                                  int first_query, int origin) {
  const bool relative = in.r != nullptr;
  for (int begin = 0; begin < in.size; begin += kDepth) {
    const auto fill = [&](auto* to, int lines, auto load) {
      fill_lines<kDepth, kDepthStride>(to, lines, begin, in.size, load);
    };
    const auto load_content = [&](int a, int f) { return load_query(in, in.u, at, first_query + a, f); };
    const auto load_position = [&](int a, int f) { return load_query(in, in.v_bias, at, first_query + a, f); };
    const int features = in.size - begin < kDepth ? in.size - begin : kDepth;
    fill(memory.content, kTile, load_content);
    if (relative) fill(memory.position, kTile, load_position);
    if constexpr (kByDistance) {
      const int first_key = first_query - origin - (kTile - 1);
      fill(memory.band, kBand, [&](int n, int f) { return load_key(in, at, range, first_key + n, f); });
      if (relative) fill(memory.direct, kTile, [&](int e, int f) { return load_term(in, at, origin + e, f); });
      __syncthreads();
      add_band(sums, memory.content, memory.band, features);
      if (relative) add_direct(sums, memory.position, memory.direct, features);
    } else {
      const int first_key = first_query - origin;
      const int first_distance = origin - (kTile - 1);
      fill(memory.direct, kTile, [&](int b, int f) { return load_key(in, at, range, first_key + b, f); });
      if (relative) fill(memory.band, kBand, [&](int n, int f) { return load_term(in, at, first_distance + n, f); });
      __syncthreads();
      add_direct(sums, memory.content, memory.direct, features);
      if (relative) add_band(sums, memory.position, memory.band, features);
    }
    __syncthreads();
  }
}

// Returns what a visible pair's logit has beside its products: the bias of its distance.
template <typename T>
__device__ inline Wide<T> bias_of(const AttentionOperands<T>& in, const Place& at, int distance) {
  if (in.bias == nullptr || distance >= in.entries) return 0;
  return in.bias[static_cast<int64_t>(at.head) * in.entries + in.entries - 1 - distance];
}

}  // namespace quire::cuda
