// Code that the forward and the backward pass of the gated delta rule share: some consecutive tokens of one head. With
// e_i = exp(g_i), products of e are written e(j, i] = e_(j+1) .. e_i. They are multiplied up, never divided, so strong
// decay makes them 0 and nothing overflows. In a chunk, with S the state before it,
//   A_ij = sum_d erase_i k_i e(j, i] k_j for j < i,   P_ij = sum_d scale q_i e(j, i] k_j for j <= i,
//   U = (I + A)^-1 (write v - (erase k e(., i]) S),   out = (scale q e(., i]) S + P U,
//   S' = e(., n] S + (k e(i, n])^T U.
#pragma once

#include "kernels/cpu/product.h"
#include "kernels/delta_sizes.h"

namespace quire::cpu {

template <typename T>
struct DeltaData {
  DeltaSizes s;
  const T *q, *k, *v, *g, *erase, *write, *state;
  const int32_t* segments;
  T scale;

  explicit DeltaData(const ops::DeltaInputs& in)
      : s(in),
        q(in.q.data<T>()),
        k(in.k.data<T>()),
        v(in.v.data<T>()),
        g(in.g.data<T>()),
        erase(in.erase.defined() ? in.erase.data<T>() : nullptr),
        write(in.write.data<T>()),
        state(in.state.data<T>()),
        segments(in.segments.data<int32_t>()),
        scale(static_cast<T>(in.scale)) {}

  int64_t state_size() const { return s.key * s.value; }
  int64_t state_at(int64_t segment, int64_t head) const { return (segment * s.value_heads + head) * state_size(); }
  int64_t key_at(int64_t cell, int64_t head) const { return (cell * s.heads + head / s.group) * s.key; }
  int64_t gate_at(int64_t cell, int64_t head, int64_t features) const {
    return (cell * s.value_heads + head) * features;
  }
  int64_t value_at(int64_t cell, int64_t head) const { return gate_at(cell, head, s.value); }
  int64_t chunk_at(int64_t begin, int64_t segment, int64_t head, int64_t first) const {
    return state_at(begin / ops::kDeltaChunk + segment + first / ops::kDeltaChunk, head);
  }
};

// Tokens that are computed together.
inline constexpr int64_t kDeltaTokens = 16;
static_assert(ops::kDeltaChunk % kDeltaTokens == 0);

// Adds up each of kLanes vectors; lane n of the result is the sum of vector n.
template <typename T, int S>
__attribute__((always_inline)) inline void add_exchanged(Vector<T> (&x)[kLanes<T>]) {
  using Lanes = std::make_index_sequence<kLanes<T>>;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; i += 2 * S) {
    const Vector<T> a = x[i], b = x[i + S];
    x[i] = exchange<T, S, false>(a, b, Lanes{}) + exchange<T, S, true>(a, b, Lanes{});
  }
}
template <typename T>
__attribute__((always_inline)) inline Vector<T> lane_sums(Vector<T> (&x)[kLanes<T>]) {
  add_exchanged<T, 1>(x);
  add_exchanged<T, 2>(x);
  if constexpr (kLanes < T >> 4) add_exchanged<T, 4>(x);
  if constexpr (kLanes < T >> 8) add_exchanged<T, 8>(x);
  return x[0];
}

template <typename T>
class DeltaChunk {
 public:
  // Rows of keys and values are padded with zeros to whole panels of a product.
  static int64_t padded(int64_t features) { return ceil_div(features, int64_t{kPanel<T>}) * kPanel<T>; }

  // `memory` has room for memory_size() values, which are 0.
  DeltaChunk(const DeltaData<T>& in, int64_t head, T* memory)
      : in_(in), head_(head), key(padded(in.s.key)), value(padded(in.s.value)) {
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    for (T** const lines : {&decay, &since, &until, &k, &q, &erased, &writes}) *lines = take(kDeltaTokens * key);
    reads = take(2 * kDeltaTokens * key);
    written = take(kDeltaTokens * value);
    a = take(kDeltaTokens * kDeltaTokens);
    p = take(kDeltaTokens * kDeltaTokens);
  }
  static int64_t memory_size(const DeltaSizes& s) {
    return kDeltaTokens * (9 * padded(s.key) + padded(s.value) + 2 * kDeltaTokens);
  }
  bool erases() const { return in_.s.erase != 0; }

  // Reads `count` tokens from `cell` on.
  void set(int64_t cell, int64_t count) {
    n = count;
    for (int64_t i = 0; i < n; ++i) token(cell + i, i);
    for (int64_t i = 0; i < n; ++i) {
      T* const to = since + i * key;
      if (i == 0) {
        std::copy_n(decay, key, to);
      } else {
        for (int64_t d = 0; d < key; ++d) to[d] = to[d - key] * decay[i * key + d];
      }
      for (int64_t d = 0; d < key; ++d) {
        reads[i * key + d] = q[i * key + d] * to[d];
        reads[(n + i) * key + d] = erased[i * key + d] * to[d];
      }
    }
    std::fill_n(until + (n - 1) * key, key, T{1});
    for (int64_t i = n - 2; i >= 0; --i) {
      for (int64_t d = 0; d < key; ++d) until[i * key + d] = until[(i + 1) * key + d] * decay[(i + 1) * key + d];
    }
    for (int64_t i = 0; i < n * key; ++i) writes[i] = k[i] * until[i];
    switch (key / kLanes<T>) {
      case 2:
        return pairs<2>();
      case 4:
        return pairs<4>();
      case 8:
        return pairs<8>();
      default:
        return pairs<0>();
    }
  }

  // Turns write * v - (what is read), [n, value], into U.
  void solve(T* u) const {
    for (int64_t j = 0; j < n; ++j) subtract_row(u, j, j + 1, n, a + j * kDeltaTokens, 1);
  }
  // Multiplies by the inverse of (I + A)^T.
  void solve_transposed(T* y) const {
    for (int64_t j = n - 1; j > 0; --j) subtract_row(y, j, 0, j, a + j, kDeltaTokens);
  }
  // state [Dk, value] = e(., n] state + (k e(i, n])^T U.
  void advance(T* state, const T* u) const {
    const T* const whole = since + (n - 1) * key;
    for (int64_t d = 0; d < in_.s.key; ++d) {
      for (int64_t j = 0; j < value; ++j) state[d * value + j] *= whole[d];
    }
    block_product<T>(state, value, {writes, key, true}, u, value, in_.s.key, value, n, true);
  }

 private:
  const DeltaData<T>& in_;
  int64_t head_;

  void token(int64_t cell, int64_t i) {
    const DeltaSizes& s = in_.s;
    const T* const gate = in_.g + in_.gate_at(cell, head_, s.decay);
    if (s.decay == s.key) {
      exponentials(decay + i * key, gate, s.key);
    } else {
      std::fill_n(decay + i * key, s.key, std::exp(*gate));
    }
    const T* const keys = in_.k + in_.key_at(cell, head_);
    const T* const queries = in_.q + in_.key_at(cell, head_);
    for (int64_t d = 0; d < s.key; ++d) {
      k[i * key + d] = keys[d];
      q[i * key + d] = in_.scale * queries[d];
    }
    if (erases()) {
      const T* const erase = in_.erase + in_.gate_at(cell, head_, s.erase);
      for (int64_t d = 0; d < s.key; ++d) erased[i * key + d] = keys[d] * erase[s.erase == 1 ? 0 : d];
    }
    const T* const values = in_.v + in_.value_at(cell, head_);
    const T* const write = in_.write + in_.gate_at(cell, head_, s.write);
    for (int64_t j = 0; j < s.value; ++j) written[i * value + j] = values[j] * write[s.write == 1 ? 0 : j];
  }

  // kVectors: those of a key when the compiler knows them, so that e(j, i] k_j stays in registers; otherwise 0.
  template <int kVectors>
  void pairs() {
    const int64_t vectors = kVectors == 0 ? key / kLanes<T> : kVectors;
    Vector<T> registers[std::max(kVectors, 1)];
    T* const memory = scratch<T>(1, key);
    const auto factor = [&](int64_t v) { return kVectors == 0 ? load_vector(memory + v * kLanes<T>) : registers[v]; };
    const auto set_factor = [&](int64_t v, Vector<T> x) {
      if (kVectors == 0) {
        store_vector(memory + v * kLanes<T>, x);
      } else {
        registers[v] = x;
      }
    };
    for (int64_t j = 0; j < n; ++j) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < vectors; ++v) set_factor(v, load_vector(k + j * key + v * kLanes<T>));
      for (int64_t first = j / kLanes<T> * kLanes<T>; first < n; first += kLanes<T>) {
        Vector<T> erase[kLanes<T>] = {}, read[kLanes<T>] = {};
        const int64_t end = std::min(n, first + kLanes<T>);
        for (int64_t i = std::max(first, j); i < end; ++i) {
          const T* const e = decay + i * key;
          Vector<T> by_erase = {}, by_read = {};
#pragma GCC unroll 8
          for (int64_t v = 0; v < vectors; ++v) {
            const int64_t d = v * kLanes<T>;
            if (i > j) set_factor(v, factor(v) * load_vector(e + d));
            by_erase += factor(v) * load_vector(erased + i * key + d);
            by_read += factor(v) * load_vector(q + i * key + d);
          }
          if (i > j) erase[i - first] = by_erase;
          read[i - first] = by_read;
        }
        store_vector(a + j * kDeltaTokens + first, lane_sums<T>(erase));
        store_vector(p + j * kDeltaTokens + first, lane_sums<T>(read));
      }
    }
  }

  // Rows [first, end) -= factor[i * stride] * row j.
  void subtract_row(T* rows, int64_t j, int64_t first, int64_t end, const T* factor, int64_t stride) const {
    for (int64_t i = first; i < end; ++i) {
      const T x = factor[i * stride];
      for (int64_t c = 0; c < value; c += kLanes<T>) {
        T* const to = rows + i * value + c;
        store_vector(to, load_vector(to) - x * load_vector(rows + j * value + c));
      }
    }
  }

 public:
  int64_t key, value;  // padded
  int64_t n = 0;
  T *decay, *since, *until;  // e_i, e(., i], e(i, n], each [n, key]
  T *k, *q, *erased;         // k, scale q, erase k, each [n, key]
  T* writes;                 // k e(i, n] [n, key]
  T* reads;                  // q e(., i], then erase k e(., i]: [2 n, key]
  T* written;                // write v [n, value]
  T *a, *p;                  // A and P by column: [j][i]
};

}  // namespace quire::cpu
