// Operands of listed attention, as kernels get them. A line is a query and a head of it, in the order of [R, T, H].
#pragma once

#include <limits>

#include "kernels/cuda/runtime.h"
#include "kernels/listed_sizes.h"

namespace quire::cuda {

// Keys and values of a block and key head.
template <typename X>
struct BlockLines {
  const X *keys, *values;
  int64_t key_stride, value_stride;
  int length, regular;

  __device__ const X* key(int j) const { return keys + j * key_stride; }
  __device__ const X* value(int j) const { return values + j * value_stride; }
};

template <typename T, typename S>
struct ListedOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const T *own_keys, *own_values;
  const int32_t *spans, *listed, *list, *rotation;
  const A *weight, *table;                                  // weight: null without weights
  int64_t lines, blocks, all_blocks, own_lines, rotations;  // all_blocks: with those of the pass
  int queries, heads, kv_heads, size, value_size, lists, list_heads, chosen, width, length, stored_length, pairs;
  A scale;
  bool of_lists, landmarks, softmax_one, interleaved;  // of_lists: weights are those of lists

  ListedOperands(const ops::ListedAttentionInputs& in, const ListedSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<S>()),
        values(in.values.data<S>()),
        own_keys(data_or_null<T>(in.own_keys)),
        own_values(data_or_null<T>(in.own_values)),
        spans(data_or_null<int32_t>(in.own_blocks)),
        listed(in.blocks.data<int32_t>()),
        list(data_or_null<int32_t>(in.list)),
        rotation(data_or_null<int32_t>(in.rotation)),
        weight(data_or_null<A>(in.weight)),
        table(data_or_null<A>(in.table)),
        lines(s.rows * s.queries * s.heads),
        blocks(s.blocks),
        all_blocks(s.blocks + s.own_blocks),
        own_lines(s.rows * s.own_keys),
        rotations(in.table.defined() ? in.table.dim(0) : 0),
        queries(static_cast<int>(s.queries)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        size(static_cast<int>(s.size)),
        value_size(static_cast<int>(s.value_size)),
        lists(static_cast<int>(s.lists)),
        list_heads(static_cast<int>(s.list_heads)),
        chosen(static_cast<int>(s.chosen)),
        width(static_cast<int>(s.width)),
        length(static_cast<int>(s.length)),
        stored_length(static_cast<int>(s.stored_length)),
        pairs(in.table.defined() ? static_cast<int>(in.table.dim(2)) : 0),
        scale(static_cast<A>(in.scale)),
        of_lists(in.weight.defined() && in.weight.rank() == 3),
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
    const int64_t head = line % heads * list_heads / heads;
    return ((query / queries * lists + own) * list_heads + head) * chosen + n;
  }
  // Returns the block of an entry of the lists, with those of the pass behind the stored ones; -1 when there is none,
  // or when it does not exist.
  __device__ int64_t block_at(int64_t entry) const {
    const int64_t block = entry < 0 ? -1 : listed[entry];
    if (block >= -1) return block < blocks ? block : -1;
    const int64_t own = -2 - block;
    if (own >= all_blocks - blocks) return -1;
    const int first = spans[2 * own];
    const int count = spans[2 * own + 1];
    return first >= 0 && count > 0 && count <= length && first + count <= own_lines ? blocks + own : -1;
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
  __device__ int kv_head_of(int64_t line) const { return static_cast<int>(line % heads) / (heads / kv_heads); }
  __device__ int64_t weight_of(int64_t line, int n) const {
    return of_lists ? entry_of(line, n) : lse_of(line) * width + n;
  }
  __device__ bool is_own(int64_t block) const { return block >= blocks; }
  __device__ int length_of(int64_t block) const { return is_own(block) ? spans[2 * (block - blocks) + 1] : length; }
  __device__ int regular_of(int64_t block) const { return length_of(block) - (landmarks ? 1 : 0); }
  // Returns the index of a block's first key of a key head among vectors of its kind.
  __device__ int64_t first_vector(int64_t block, int kv_head) const {
    return (is_own(block) ? spans[2 * (block - blocks)] : block * stored_length) * int64_t{kv_heads} + kv_head;
  }
  // Calls function(BlockLines) for a block, whose numbers have the type of its kind.
  template <typename Function>
  __device__ void with_block(int64_t block, int kv_head, const Function& function) const {
    const int64_t first = first_vector(block, kv_head), stride = kv_heads;
    const auto call = [&](const auto* k, const auto* v) {
      using X = std::remove_cv_t<std::remove_pointer_t<decltype(k)>>;
      function(BlockLines<X>{k + first * size, v + first * value_size, stride * size, stride * value_size,
                             length_of(block), regular_of(block)});
    };
    if (is_own(block)) {
      call(own_keys, own_values);
    } else {
      call(keys, values);
    }
  }
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
