// Attention to retrieved entries: their keys and values are read in place, and those of the next query are prefetched
// meanwhile.
#include "kernels/cpu/knn_memory.h"

namespace quire::cpu {

namespace {

// The queries of one unit of work.
constexpr int64_t kQueries = 64;

template <typename T>
T sum_of(Vector<T> x) {
  T values[kLanes<T>];
  store_vector(values, x);
  for (int half = kLanes<T> / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] += values[i + half];
  }
  return values[0];
}

template <typename T, typename S>
T dot(const T* x, const S* stored, int64_t size) {
  constexpr int64_t kWidth = kLanes<T>;
  Vector<T> sum{};
  Vector<T> other{};
  int64_t d = 0;
  for (; d + 2 * kWidth <= size; d += 2 * kWidth) {
    sum += load_vector(x + d) * load_stored<T>(stored + d);
    other += load_vector(x + d + kWidth) * load_stored<T>(stored + d + kWidth);
  }
  if (d + kWidth <= size) {
    sum += load_vector(x + d) * load_stored<T>(stored + d);
    d += kWidth;
  }
  T total = sum_of<T>(sum + other);
  for (; d < size; ++d) total += x[d] * from_stored<T>(stored[d]);
  return total;
}

// Computes out [width] = before * out + sum of weights times stored vectors.
template <int V, typename T, typename S>
void add_part(T* out, T before, const T* weights, const StoredVectors<T, S>& vectors, const int64_t* slots,
              int64_t count, int64_t first) {
  constexpr int64_t kWidth = kLanes<T>;
  Vector<T> sum[V];
  for (int v = 0; v < V; ++v) sum[v] = before == T{0} ? Vector<T>{} : load_vector(out + first + v * kWidth) * before;
  for (int64_t j = 0; j < count; ++j) {
    const S* const from = vectors.at(slots[j]) + first;
    const Vector<T> weight = weights[j] - Vector<T>{};
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[v] += weight * load_stored<T>(from + v * kWidth);
  }
  for (int v = 0; v < V; ++v) store_vector(out + first + v * kWidth, sum[v]);
}

template <typename T, typename S>
void add_weighted(T* out, T before, const T* weights, const StoredVectors<T, S>& vectors, const int64_t* slots,
                  int64_t count) {
  constexpr int64_t kWidth = kLanes<T>;
  const int64_t width = vectors.width();
  int64_t d = 0;
  for (; d + 4 * kWidth <= width; d += 4 * kWidth) add_part<4>(out, before, weights, vectors, slots, count, d);
  for (; d + kWidth <= width; d += kWidth) add_part<1>(out, before, weights, vectors, slots, count, d);
  for (; d < width; ++d) {
    T sum = before == T{0} ? T{0} : out[d] * before;
    for (int64_t j = 0; j < count; ++j) sum += weights[j] * from_stored<T>(vectors.at(slots[j])[d]);
    out[d] = sum;
  }
}

// Queries of one row and head with the slots of their entries.
template <typename T, typename S>
class Retrieved {
 public:
  Retrieved(const char* op, const ops::KnnAttentionInputs& in, const KnnSizes& s, int64_t row, int64_t head)
      : keys_(op, in.memory.keys, in.memory.key_scale, in.memory, row, head / s.group()),
        values_(op, in.memory.values, in.memory.value_scale, in.memory, row, head / s.group()),
        op_(op),
        index_(in.index.data<int32_t>()),
        heads_(s.heads),
        top_k_(s.top_k),
        slots_{scratch<int64_t>(0, s.top_k), scratch<int64_t>(1, s.top_k)} {}

  const StoredVectors<T, S>& keys() const { return keys_; }
  const StoredVectors<T, S>& values() const { return values_; }

  // Reads the entries of the queries at lines [first, last) of [R * T * H], one token apart, and calls body(line,
  // slots, count).
  template <typename Body>
  void for_each(int64_t first, int64_t last, Body&& body) {
    int64_t count = find(0, first);
    for (int64_t line = first; line < last; line += heads_) {
      std::swap(slots_[0], slots_[1]);
      const int64_t ahead = line + heads_ < last ? find(0, line + heads_) : 0;
      for (int64_t j = 0; j < ahead; ++j) {
        keys_.prefetch(slots_[0][j]);
        values_.prefetch(slots_[0][j]);
      }
      body(line, static_cast<const int64_t*>(slots_[1]), count);
      count = ahead;
    }
  }

 private:
  int64_t find(int which, int64_t line) {
    int64_t count = 0;
    for (int64_t j = 0; j < top_k_; ++j) {
      const int64_t entry = index_[line * top_k_ + j];
      if (entry < 0) continue;
      QUIRE_CHECK(entry < keys_.length(), "{}: entry {} of {}", op_, entry, keys_.length());
      slots_[which][count++] = keys_.slot(entry);
    }
    return count;
  }

  StoredVectors<T, S> keys_, values_;
  const char* op_;
  const int32_t* index_;
  int64_t heads_, top_k_;
  int64_t* slots_[2];
};

// Calls body(row, head, first line, end of lines) for blocks of queries.
template <typename Body>
void for_query_blocks(const KnnSizes& s, Body&& body) {
  const int64_t blocks = ceil_div(s.queries, kQueries);
  parallel_for(s.rows * s.heads * blocks, [&](int64_t tile) {
    const int64_t row = tile / (s.heads * blocks);
    const int64_t head = tile / blocks % s.heads;
    const int64_t first = tile % blocks * kQueries;
    const int64_t end = std::min(s.queries, first + kQueries);
    body(row, head, (row * s.queries + first) * s.heads + head, (row * s.queries + end) * s.heads + head);
  });
}

template <typename Function>
void dispatch_both(const char* op, const ops::KnnAttentionInputs& in, Function&& function) {
  dispatch(op, in.q.dtype(), [&](auto type) {
    dispatch_stored<decltype(type)>(op, in.memory.keys.dtype(), [&](auto stored) { function(type, stored); });
  });
}

void knn_attention(const Tensor& out, const Tensor& lse, const ops::KnnAttentionInputs& in, bool goes_on) {
  const KnnSizes s(in.q, in.index, in.memory);
  check_knn_attention(s, out, lse, in);
  dispatch_both("knn_attention", in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    for_query_blocks(s, [&](int64_t row, int64_t head, int64_t first, int64_t last) {
      Retrieved<T, S> entries("knn_attention", in, s, row, head);
      T* const weights = scratch<T>(0, s.top_k);
      entries.for_each(first, last, [&](int64_t line, const int64_t* slots, int64_t count) {
        T* const to = out.data<T>() + line * s.value_size;
        T& log_sum = lse.data<T>()[(row * s.heads + head) * s.queries + line / s.heads - row * s.queries];
        if (!goes_on) log_sum = -std::numeric_limits<T>::infinity();
        const T* const q = in.q.data<T>() + line * s.size;
        T top = log_sum;
        for (int64_t j = 0; j < count; ++j) {
          weights[j] = dot(q, entries.keys().at(slots[j]), s.size) * entries.keys().scale(slots[j]);
          top = weights[j] > top ? weights[j] : top;
        }
        // There was no key, or only logits of -inf: the sum stays empty. (NaN differs from -inf and is kept.)
        if (top == -std::numeric_limits<T>::infinity() &&
            std::all_of(weights, weights + count, [top](T x) { return x == top; })) {
          if (!goes_on) std::fill(to, to + s.value_size, T{0});
          return;
        }
        if (top == -std::numeric_limits<T>::infinity()) top = 0;
        const T before = std::exp(log_sum - top);
        T sum = before;
        for (int64_t j = 0; j < count; ++j) {
          weights[j] = std::exp(weights[j] - top);
          sum += weights[j];
        }
        for (int64_t j = 0; j < count; ++j) weights[j] = weights[j] / sum * entries.values().scale(slots[j]);
        add_weighted(to, before / sum, weights, entries.values(), slots, count);
        log_sum = top + std::log(sum);
      });
    });
  });
}

void knn_attention_backward(const Tensor& dq, const Tensor& dout, const Tensor& out, const Tensor& lse,
                            const ops::KnnAttentionInputs& in, bool accumulate) {
  const KnnSizes s(in.q, in.index, in.memory);
  check_knn_attention_backward(s, dq, dout, out, lse, in);
  dispatch_both("knn_attention_backward", in, [&](auto type, auto stored) {
    using T = decltype(type);
    using S = decltype(stored);
    for_query_blocks(s, [&](int64_t row, int64_t head, int64_t first, int64_t last) {
      Retrieved<T, S> entries("knn_attention_backward", in, s, row, head);
      T* const weights = scratch<T>(0, s.top_k);
      entries.for_each(first, last, [&](int64_t line, const int64_t* slots, int64_t count) {
        const T* const q = in.q.data<T>() + line * s.size;
        const T* const gradient = dout.data<T>() + line * s.value_size;
        const T log_sum = lse.data<T>()[(row * s.heads + head) * s.queries + line / s.heads - row * s.queries];
        const T mean = dot(gradient, out.data<T>() + line * s.value_size, s.value_size);
        for (int64_t j = 0; j < count; ++j) {
          const T key_scale = entries.keys().scale(slots[j]);
          const T logit = dot(q, entries.keys().at(slots[j]), s.size) * key_scale;
          const T dp = dot(gradient, entries.values().at(slots[j]), s.value_size) * entries.values().scale(slots[j]);
          // With an empty sum every logit is -inf and every probability is 0.
          weights[j] =
              logit == -std::numeric_limits<T>::infinity() ? T{0} : std::exp(logit - log_sum) * (dp - mean) * key_scale;
        }
        add_weighted(dq.data<T>() + line * s.size, accumulate ? T{1} : T{0}, weights, entries.keys(), slots, count);
      });
    });
  });
}

}  // namespace

void bind_knn_attention() {
  ops::knn_attention.bind(DeviceKind::cpu, knn_attention);
  ops::knn_attention_backward.bind(DeviceKind::cpu, knn_attention_backward);
}

}  // namespace quire::cpu
