// Operands of attention to stored blocks, as kernels get them. A line is a query and a head of it, in the order of [R,
// T, H].
#pragma once

#include "kernels/block_attention.h"
#include "kernels/block_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

template <typename T, typename S>
struct StoredOperands {
  using A = Wide<T>;
  const T* q;
  const S *keys, *values;
  const int32_t *slot, *rotation;
  const A* table;
  int64_t lines, slots, entries;
  int queries, heads, kv_heads, size, value_size, chosen, length, pairs;
  A scale;
  bool landmarks, interleaved;

  StoredOperands(const ops::StoredAttentionInputs& in, const StoredSizes& s)
      : q(in.q.data<T>()),
        keys(in.keys.data<S>()),
        values(in.values.data<S>()),
        slot(in.slot.data<int32_t>()),
        rotation(in.rotation.defined() ? in.rotation.data<int32_t>() : nullptr),
        table(in.table.defined() ? in.table.data<A>() : nullptr),
        lines(s.rows * s.queries * s.heads),
        slots(in.keys.dim(0)),
        entries(in.table.defined() ? in.table.dim(0) : 0),
        queries(static_cast<int>(s.queries)),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        size(static_cast<int>(s.size)),
        value_size(static_cast<int>(s.value_size)),
        chosen(static_cast<int>(s.chosen)),
        length(static_cast<int>(s.length)),
        pairs(in.table.defined() ? static_cast<int>(in.table.dim(2)) : 0),
        scale(static_cast<A>(in.scale)),
        landmarks(in.landmarks),
        interleaved(in.interleaved) {}

  // Returns the index in [R, H, T] of a line of [R, T, H].
  __device__ int64_t lse_of(int64_t line) const {
    return (line / heads / queries * heads + line % heads) * queries + line / heads % queries;
  }
  // Returns the n-th block of a line. It is -1 when there is none, or when the slot does not exist, which the host
  // cannot check.
  __device__ int64_t block_of(int64_t line, int n) const {
    const int64_t block = slot[line * chosen + n];
    return block < slots ? block : -1;
  }
  // Returns the cosines of a block's rotation, with its sines behind them; null without a table.
  __device__ const A* angles_of(int64_t line, int n) const {
    if (table == nullptr) return nullptr;
    int64_t back = rotation[line * chosen + n];
    back = back < 0 ? 0 : (back < entries ? back : entries - 1);
    return table + back * 2 * pairs;
  }
  __device__ int64_t first_vector(int64_t line, int64_t block) const {
    return block * length * kv_heads + line % heads / (heads / kv_heads);
  }
  __device__ int64_t key_stride() const { return int64_t{kv_heads} * size; }
  __device__ int64_t value_stride() const { return int64_t{kv_heads} * value_size; }
  __device__ const S* key(int64_t first, int j) const { return keys + first * size + j * key_stride(); }
  __device__ const S* value(int64_t first, int j) const { return values + first * value_size + j * value_stride(); }
  __device__ int regular() const { return length - (landmarks ? 1 : 0); }
};

}  // namespace quire::cuda
