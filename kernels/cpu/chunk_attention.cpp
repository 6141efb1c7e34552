#include "kernels/chunk_attention.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kernels/chunk_sizes.h"
#include "kernels/cpu/product.h"

namespace quire::cpu {

namespace {

// The queries of a tile, one per vector lane, unless one token has more query heads for a key head.
inline constexpr int64_t kChunkQueries = 96;

void chunk_reads(const Tensor& begin, const Tensor& reads, const Tensor& chosen) {
  check_chunk_reads(begin, reads, chosen);
  const int64_t chunks = begin.dim(2) - 1, entries = reads.dim(2);
  parallel_for(chosen.dim(0) * chosen.dim(1), [&](int64_t part) {
    const int32_t* const of = chosen.data<int32_t>() + part * entries;
    int32_t* const first = begin.data<int32_t>() + part * (chunks + 1);
    int32_t* const to = reads.data<int32_t>() + part * entries;
    std::fill_n(first, chunks + 1, 0);
    for (int64_t i = 0; i < entries; ++i) {
      QUIRE_CHECK(of[i] >= -1 && of[i] < chunks, "chunk_reads: chunk {} of {}", of[i], chunks);
      if (of[i] >= 0) ++first[of[i] + 1];
    }
    for (int64_t c = 0; c < chunks; ++c) first[c + 1] += first[c];
    std::vector<int32_t> next(first, first + chunks);
    for (int64_t i = 0; i < entries; ++i) {
      if (of[i] >= 0) to[next[static_cast<size_t>(of[i])]++] = static_cast<int32_t>(i);
    }
    std::fill(to + first[chunks], to + entries, -1);
  });
}

// The operands of a task: one row and key head.
template <typename T>
struct ChunkTask {
  static constexpr int64_t kWidth = kLanes<T>;

  const ops::ChunkAttentionInputs& in;
  const ChunkSizes& s;
  int64_t row, kv_head;

  int64_t part() const { return row * s.kv_heads + kv_head; }
  int64_t first_head() const { return kv_head * s.group(); }
  const T* keys(int64_t chunk) const { return in.keys.data<T>() + (part() * s.chunks + chunk) * s.length * s.size; }
  const T* values(int64_t chunk) const {
    return in.values.data<T>() + (part() * s.chunks + chunk) * s.length * s.value_size;
  }
  // Returns the index of a query, of the first head, in [R, T, H].
  int64_t line(int32_t read) const { return (row * s.queries + read / s.chosen) * s.heads + first_head(); }
  // Returns the index of a weight of the h-th head of the group.
  int64_t weight(int32_t read, int64_t h, int64_t width) const {
    return ((row * s.heads + first_head() + h) * s.queries + read / s.chosen) * width + read % s.chosen;
  }

  // Calls body(chunk, reads, count, lanes) for tiles of the reads of each chunk.
  template <typename Body>
  void for_each_tile(const Body& body) const {
    const int32_t* const begin = in.begin.data<int32_t>() + part() * (s.chunks + 1);
    const int32_t* const reads = in.reads.data<int32_t>() + part() * s.queries * s.chosen;
    const int64_t max_count = std::max<int64_t>(1, kChunkQueries / s.group());
    for (int64_t chunk = 0; chunk < s.chunks; ++chunk) {
      for (int64_t first = begin[chunk]; first < begin[chunk + 1]; first += max_count) {
        const int64_t count = std::min<int64_t>(max_count, begin[chunk + 1] - first);
        body(chunk, reads + first, count, ceil_div(count * s.group(), kWidth) * kWidth);
      }
    }
  }
  int64_t max_lanes() const {
    return ceil_div(std::max<int64_t>(1, kChunkQueries / s.group()) * s.group(), kWidth) * kWidth;
  }

  // to [count * group, size] of x [R, T, H, size].
  void pack(T* to, const T* x, const int32_t* reads, int64_t count, int64_t size) const {
    const int64_t together = s.group() * size;
    for (int64_t e = 0; e < count; ++e) std::copy_n(x + line(reads[e]) * size, together, to + e * together);
  }
  // Adds what pack() would read.
  void add(T* x, const T* from, const int32_t* reads, int64_t count, int64_t size) const {
    const int64_t together = s.group() * size;
    for (int64_t e = 0; e < count; ++e) {
      ArrayView<T>(x + line(reads[e]) * size, together) += ConstArrayView<T>(from + e * together, together);
    }
  }
  void clear(T* x, int64_t size) const {
    for (int64_t t = 0; t < s.queries; ++t) {
      std::fill_n(x + ((row * s.queries + t) * s.heads + first_head()) * size, s.group() * size, T{0});
    }
  }
  // to [size, lanes] = transposed from packed [count, size] times a factor; lanes beyond the queries are zero.
  static void turn(T* to, int64_t lanes, const T* from, int64_t count, int64_t size, T factor) {
    for (int64_t a = 0; a < lanes; a += kWidth) {
      transpose_rows(to + a, lanes, from + a * size, size, std::min(kWidth, count - a), size);
    }
    if (factor != T{1}) ArrayView<T>(to, lanes * size) *= factor;
  }
};

// p: logits [L, lanes] become weight * p.
template <typename T>
void weigh_chunk(T* p, T* log_sums, const T* weights, int64_t lanes, int64_t length) {
  const Vector<T> zero{};
  for (int64_t a = 0; a < lanes; a += kLanes<T>) {
    T* const x = p + a;
    Vector<T> top = std::numeric_limits<T>::lowest() - zero;
    for (int64_t j = 0; j < length; ++j) top = larger<T>(top, load_vector(x + j * lanes));
    Vector<T> sum = zero;
    for (int64_t j = 0; j < length; ++j) {
      const Vector<T> value = exponential<T>(load_vector(x + j * lanes) - top);
      store_vector(x + j * lanes, value);
      sum += value;
    }
    const Vector<T> factor = load_vector(weights + a) / sum;
    for (int64_t j = 0; j < length; ++j) store_vector(x + j * lanes, load_vector(x + j * lanes) * factor);
    store_vector(log_sums + a, top);
    for (int64_t i = 0; i < kLanes<T>; ++i) log_sums[a + i] += std::log(sum[i]);
  }
}

template <typename T>
void forward(const Tensor& out, const Tensor& lse, const ChunkTask<T>& task) {
  const ChunkSizes& s = task.s;
  const int64_t group = s.group(), max_lanes = task.max_lanes();
  task.clear(out.data<T>(), s.value_size);
  T* const packed = scratch<T>(0, max_lanes * s.size);
  T* const q = scratch<T>(1, max_lanes * s.size);
  T* const p = scratch<T>(2, max_lanes * s.length);
  T* const y = scratch<T>(3, max_lanes * s.value_size);
  T* const weights = scratch<T>(4, 2 * max_lanes);
  T* const log_sums = weights + max_lanes;
  const T* const all_queries = task.in.q.template data<T>();
  const T* const all_weights = task.in.weight.template data<T>();
  T* const all_sums = lse.data<T>();
  T* const result = out.data<T>();
  task.for_each_tile([&](int64_t chunk, const int32_t* reads, int64_t count, int64_t lanes) {
    const int64_t queries = count * group;
    task.pack(packed, all_queries, reads, count, s.size);
    task.turn(q, lanes, packed, queries, s.size, static_cast<T>(task.in.scale));
    block_product(p, lanes, Operand<T>{task.keys(chunk), s.size}, q, lanes, s.length, lanes, s.size, false);
    std::fill_n(weights, lanes, T{0});
    for (int64_t a = 0; a < queries; ++a) {
      weights[a] = all_weights[task.weight(reads[a / group], a % group, s.width)];
    }
    weigh_chunk(p, log_sums, weights, lanes, s.length);
    for (int64_t a = 0; a < queries; ++a) {
      all_sums[task.weight(reads[a / group], a % group, s.chosen)] = log_sums[a];
    }
    block_product(y, s.value_size, Operand<T>{p, lanes, true}, task.values(chunk), s.value_size, queries, s.value_size,
                  s.length, false);
    task.add(result, y, reads, count, s.value_size);
  });
}

// With D = sum over j of p_j dp_j, the gradient of the weight, the gradient of a logit is weight * p (dp - D).
template <typename T>
struct ChunkBackward {
  const ops::ChunkAttentionGradients& g;
  const Tensor& dout;
  const Tensor& lse;
  const ChunkTask<T>& task;

  // p: logits [L, lanes] become weight * p; dp: gradients of p become those of q.k; deltas receives D.
  void softmax_gradient(T* p, T* dp, const T* log_sums, const T* weights, T* deltas, int64_t lanes) const {
    const int64_t length = task.s.length;
    const T factor = static_cast<T>(task.in.scale);
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      const Vector<T> log_sum = load_vector(log_sums + a), weight = load_vector(weights + a);
      Vector<T> delta{};
      for (int64_t j = 0; j < length; ++j) {
        const Vector<T> value = exponential<T>(load_vector(p + j * lanes + a) - log_sum);
        store_vector(p + j * lanes + a, value);
        delta += value * load_vector(dp + j * lanes + a);
      }
      store_vector(deltas + a, delta);
      for (int64_t j = 0; j < length; ++j) {
        T* const dx = dp + j * lanes + a;
        const Vector<T> weighted = load_vector(p + j * lanes + a) * weight;
        store_vector(p + j * lanes + a, weighted);
        store_vector(dx, weighted * factor * (load_vector(dx) - delta));
      }
    }
  }

  void run() const {
    const ChunkSizes& s = task.s;
    const int64_t group = s.group(), max_lanes = task.max_lanes();
    task.clear(g.dq.data<T>(), s.size);
    T* const q = scratch<T>(0, max_lanes * s.size);
    T* const dy = scratch<T>(1, max_lanes * s.value_size);
    T* const q_by_feature = scratch<T>(2, max_lanes * s.size);
    T* const dy_by_feature = scratch<T>(3, max_lanes * s.value_size);
    T* const p = scratch<T>(4, max_lanes * s.length);
    T* const dp = scratch<T>(5, max_lanes * s.length);
    T* const dq = scratch<T>(6, max_lanes * s.size);
    T* const log_sums = scratch<T>(7, 3 * max_lanes);
    T* const weights = log_sums + max_lanes;
    T* const deltas = weights + max_lanes;
    const T* const all_queries = task.in.q.template data<T>();
    const T* const all_weights = task.in.weight.template data<T>();
    const T* const all_sums = lse.data<T>();
    const T* const all_dy = dout.data<T>();
    T *const dweight = g.dweight.data<T>(), *const all_dq = g.dq.data<T>();
    T *const dkeys = g.dkeys.data<T>(), *const dvalues = g.dvalues.data<T>();
    task.for_each_tile([&](int64_t chunk, const int32_t* reads, int64_t count, int64_t lanes) {
      const int64_t queries = count * group;
      task.pack(q, all_queries, reads, count, s.size);
      task.pack(dy, all_dy, reads, count, s.value_size);
      task.turn(q_by_feature, lanes, q, queries, s.size, static_cast<T>(task.in.scale));
      task.turn(dy_by_feature, lanes, dy, queries, s.value_size, T{1});
      std::fill_n(log_sums, 2 * max_lanes, T{0});
      for (int64_t a = 0; a < queries; ++a) {
        log_sums[a] = all_sums[task.weight(reads[a / group], a % group, s.chosen)];
        weights[a] = all_weights[task.weight(reads[a / group], a % group, s.width)];
      }
      block_product(p, lanes, Operand<T>{task.keys(chunk), s.size}, q_by_feature, lanes, s.length, lanes, s.size,
                    false);
      block_product(dp, lanes, Operand<T>{task.values(chunk), s.value_size}, dy_by_feature, lanes, s.length, lanes,
                    s.value_size, false);
      softmax_gradient(p, dp, log_sums, weights, deltas, lanes);
      for (int64_t a = 0; a < queries; ++a) {
        dweight[task.weight(reads[a / group], a % group, s.width)] = deltas[a];
      }
      const int64_t at = task.part() * s.chunks + chunk;
      block_product(dvalues + at * s.length * s.value_size, s.value_size, Operand<T>{p, lanes}, dy, s.value_size,
                    s.length, s.value_size, queries, true);
      block_product(dkeys + at * s.length * s.size, s.size, Operand<T>{dp, lanes}, q, s.size, s.length, s.size, queries,
                    true);
      block_product(dq, s.size, Operand<T>{dp, lanes, true}, task.keys(chunk), s.size, queries, s.size, s.length,
                    false);
      task.add(all_dq, dq, reads, count, s.size);
    });
  }
};

void chunk_attention(const Tensor& out, const Tensor& lse, const ops::ChunkAttentionInputs& in) {
  const ChunkSizes s(in);
  check_chunk_attention(s, out, lse, in);
  lse.zero();
  dispatch("chunk_attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads, [&](int64_t n) {
      forward(out, lse, ChunkTask<T>{in, s, n / s.kv_heads, n % s.kv_heads});
    });
  });
}

void chunk_attention_backward(const ops::ChunkAttentionGradients& g, const Tensor& dout, const Tensor& lse,
                              const ops::ChunkAttentionInputs& in) {
  const ChunkSizes s(in);
  check_chunk_attention_backward(s, g, dout, lse, in);
  for (const Tensor* gradient : {&g.dkeys, &g.dvalues, &g.dweight}) gradient->zero();
  dispatch("chunk_attention_backward", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(s.rows * s.kv_heads, [&](int64_t n) {
      const ChunkTask<T> task{in, s, n / s.kv_heads, n % s.kv_heads};
      ChunkBackward<T>{g, dout, lse, task}.run();
    });
  });
}

}  // namespace

void bind_chunk_attention() {
  ops::chunk_reads.bind(DeviceKind::cpu, chunk_reads);
  ops::chunk_attention.bind(DeviceKind::cpu, chunk_attention);
  ops::chunk_attention_backward.bind(DeviceKind::cpu, chunk_attention_backward);
}

}  // namespace quire::cpu
