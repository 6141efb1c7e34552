// Operands of listed attention, as kernels get them. A line is a query and a head of it, in the order of [R, T, H].
#pragma once

#include <limits>

#include "kernels/cuda/runtime.h"
#include "kernels/listed_sizes.h"

namespace quire::cuda {

template <typename T, typename S>
struct ListedOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const int32_t *listed, *list, *rotation;
  const A *weight, *table;  // weight: null without weights
  int64_t lines, blocks, rotations;
  int queries, heads, kv_heads, size, value_size, lists, list_heads, chosen, length, pairs;
  A scale;
  bool landmarks, softmax_one, interleaved;

  ListedOperands(const ops::ListedAttentionInputs& in, const ListedSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<S>()),
        values(in.values.data<S>()),
        listed(in.blocks.data<int32_t>()),
        list(data_or_null<int32_t>(in.list)),
        rotation(data_or_null<int32_t>(in.rotation)),
        weight(data_or_null<A>(in.weight)),
        table(data_or_null<A>(in.table)),
        lines(s.rows * s.queries * s.heads),
        blocks(s.blocks),
        rotations(in.table.defined() ? in.table.dim(0) : 0),
        queries(static_cast<int>(s.queries)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        size(static_cast<int>(s.size)),
        value_size(static_cast<int>(s.value_size)),
        lists(static_cast<int>(s.lists)),
        list_heads(static_cast<int>(s.list_heads)),
        chosen(static_cast<int>(s.chosen)),
        length(static_cast<int>(s.length)),
        pairs(in.table.defined() ? static_cast<int>(in.table.dim(2)) : 0),
        scale(static_cast<A>(in.scale)),
        landmarks(in.landmarks),
        softmax_one(in.softmax_one),
        interleaved(in.interleaved) {}

  // Returns the index in [R, H, T] of a line of [R, T, H].
  __device__ int64_t lse_of(int64_t line) const {
    return (line / heads / queries * heads + line % heads) * queries + line / heads % queries;
  }
  // Returns the index into lists of the n-th block of a line; -1 when the line reads no list, or one that does not
  // exist, which the host cannot check.
  __device__ int64_t entry_of(int64_t line, int n) const {
    const int64_t query = line / heads;
    const int64_t own = list == nullptr ? query % queries : list[query];
    if (own < 0 || own >= lists) return -1;
    const int64_t head = list_heads == 1 ? 0 : line % heads;
    return ((query / queries * lists + own) * list_heads + head) * chosen + n;
  }
  // Returns the block of an entry of the lists; -1 when there is none, or when it does not exist.
  __device__ int64_t block_at(int64_t entry) const {
    const int64_t block = entry < 0 ? -1 : listed[entry];
    return block >= 0 && block < blocks ? block : -1;
  }
  __device__ int64_t block_of(int64_t line, int n) const { return block_at(entry_of(line, n)); }
  __device__ bool is_weighted() const { return weight != nullptr; }
  // Says whether a block has a softmax of its own.
  __device__ bool is_by_block() const { return landmarks || is_weighted(); }
  // Returns the cosines of a block's rotation, with its sines behind them; null without a table.
  __device__ const A* angles_of(int64_t line, int n) const {
    if (table == nullptr) return nullptr;
    int64_t back = rotation[entry_of(line, n)];
    back = back < 0 ? 0 : (back < rotations ? back : rotations - 1);
    return table + back * 2 * pairs;
  }
  // Returns the largest logit before any key was read: that of exp(0), or none.
  __device__ A first_top() const { return softmax_one ? A{0} : std::numeric_limits<A>::lowest(); }
  __device__ int64_t first_vector(int64_t line, int64_t block) const {
    return block * length * kv_heads + line % heads / (heads / kv_heads);
  }
  __device__ int64_t key_stride() const { return int64_t{kv_heads} * size; }
  __device__ int64_t value_stride() const { return int64_t{kv_heads} * value_size; }
  __device__ const S* key(int64_t first, int j) const { return keys + first * size + j * key_stride(); }
  __device__ const S* value(int64_t first, int j) const { return values + first * value_size + j * value_stride(); }
  __device__ int regular() const { return length - (landmarks ? 1 : 0); }
};

// Calls function(T{}, S{}) with the types of queries and of keys and values.
template <typename Function>
void dispatch_stored(const ops::ListedAttentionInputs& in, Function&& function) {
  dispatch(in.q.dtype(), [&](auto type) {
    if (in.keys.dtype() == in.q.dtype()) return function(type, type);
    if constexpr (!std::is_same_v<decltype(type), bfloat16>) function(type, bfloat16{});
  });
}

}  // namespace quire::cuda
