// The backward pass of attention with given weights for a run of queries.
#pragma once

#include <limits>

#include "kernels/cpu/listed_tiles.h"

namespace quire::cpu {

// With D = sum over j of p_j dp_j, the gradient of the weight, the gradient of a logit is weight * p (dp - D).
template <typename T, typename S>
struct ListBackward {
  const ops::ListedAttentionGradients& g;
  const Tensor& dout;
  const Tensor& lse;
  const ops::ListedAttentionInputs& in;
  const ListedSizes& s;
  std::vector<T>& dweight;  // [Hk, R, L, K]: by key head

  static constexpr int64_t kWidth = kLanes<T>;

  // p: logits [S, lanes]; those of the first `whole` lanes become weight * p. dp: gradients of p become those of q.k.
  // Returns the sum of D over as many of the `count` queries.
  T softmax_gradient(T* p, T* dp, const T* log_sums, int64_t count, int64_t lanes, int64_t whole, T weight) const {
    T sum = 0;
    const T factor = static_cast<T>(in.scale);
    for (int64_t a = 0; a < whole; a += kWidth) {
      const Vector<T> log_sum = load_vector(log_sums + a);
      Vector<T> delta{};
      for (int64_t j = 0; j < s.length; ++j) {
        const Vector<T> value = exponential<T>(load_vector(p + j * lanes + a) - log_sum);
        store_vector(p + j * lanes + a, value);
        delta += value * load_vector(dp + j * lanes + a);
      }
      for (int64_t i = 0; i < std::min(kWidth, count - a); ++i) sum += delta[i];
      for (int64_t j = 0; j < s.length; ++j) {
        T* const x = p + j * lanes + a;
        T* const dx = dp + j * lanes + a;
        const Vector<T> weighted = load_vector(x) * weight;
        store_vector(x, weighted);
        store_vector(dx, weighted * factor * (load_vector(dx) - delta));
      }
    }
    return sum;
  }

  // Does the same for one query, [S] with room for a vector after it; returns its D.
  T softmax_gradient(T* p, T* dp, T log_sum, T weight) const {
    T delta = 0;
    for (int64_t j = 0; j < s.length; j += kWidth) {
      store_vector(p + j, exponential<T>(load_vector(p + j) - (log_sum + Vector<T>{})));
    }
    for (int64_t j = 0; j < s.length; ++j) delta += p[j] * dp[j];
    ArrayView<T> weighted(p, s.length);
    ArrayView<T> gradients(dp, s.length);
    weighted *= weight;
    gradients = weighted * static_cast<T>(in.scale) * (gradients - delta);
    return delta;
  }

  void tile(const QueryRun& tile, int64_t head) const {
    const int64_t lanes = lanes_of<T>(tile), whole = whole_lanes<T>(tile);
    const int64_t kv_head = head / s.group();
    const int64_t stride = s.heads * s.size;
    T* const dq = g.dq.defined() ? g.dq.data<T>() + line_of(s, tile, head, s.size) : nullptr;
    bool written = false;
    if (tile.list >= 0) {
      T* const q = scratch<T>(0, tile.count * s.size);
      T* const dy = scratch<T>(1, tile.count * s.value_size);
      T* const q_by_feature = scratch<T>(2, lanes * s.size);
      T* const dy_by_feature = scratch<T>(3, lanes * s.value_size);
      T* const p = scratch<T>(4, s.length * lanes);
      T* const dp = scratch<T>(5, s.length * lanes);
      pack_lines(q, in.q.data<T>() + line_of(s, tile, head, s.size), stride, tile.count, s.size);
      pack_lines(dy, dout.data<T>() + line_of(s, tile, head, s.value_size), s.heads * s.value_size, tile.count,
                 s.value_size);
      LinesByFeature<T> keys_by_feature(s, s.size, 8), values_by_feature(s, s.value_size, 9);
      const int64_t of_one = keys_by_feature.lanes();
      T* const one = scratch<T>(10, s.size + 2 * of_one);  // a query, its logits, and their gradients
      turn_queries(q_by_feature, whole, q, s.size, tile.count, s.size, static_cast<T>(in.scale));
      turn_queries(dy_by_feature, whole, dy, s.value_size, tile.count, s.value_size, T{1});
      const T* const log_sums = lse.data<T>() + lse_of(s, tile, head);
      const int64_t entry = (tile.row * s.lists + tile.list) * s.chosen;
      std::array<T, kListQueries> own{};
      for (int64_t n = 0; n < s.chosen; ++n) {
        const int64_t chunk = chunk_of(in, s, tile, n);
        if (chunk < 0) continue;
        // When all logits are -inf, so is the log of the sum; with 0 instead, exp(-inf - 0) gives p = 0.
        for (int64_t a = 0; a < tile.count; ++a) {
          const T log_sum = log_sums[a * s.chosen + n];
          own[static_cast<size_t>(a)] = log_sum == -std::numeric_limits<T>::infinity() ? T{0} : log_sum;
        }
        const Operand<T> keys = chunk_lines<T, S>(in.keys, s, chunk, kv_head, s.size, 6);
        const Operand<T> values = chunk_lines<T, S>(in.values, s, chunk, kv_head, s.value_size, 7);
        const T weight = in.weight.data<T>()[entry + n];
        block_product(p, lanes, keys, q_by_feature, whole, s.length, whole, s.size, false);
        block_product(dp, lanes, values, dy_by_feature, whole, s.length, whole, s.value_size, false);
        T delta = softmax_gradient(p, dp, own.data(), tile.count, lanes, whole, weight);
        if (whole < tile.count) {
          keys_by_feature.load(keys);
          values_by_feature.load(values);
        }
        for (int64_t a = whole; a < tile.count; ++a) {
          T* const logits = one + s.size;
          T* const gradients = logits + of_one;
          for (int64_t f = 0; f < s.size; ++f) one[f] = q[a * s.size + f] * static_cast<T>(in.scale);
          keys_by_feature.multiply(logits, one);
          values_by_feature.multiply(gradients, dy + a * s.value_size);
          delta += softmax_gradient(logits, gradients, own[static_cast<size_t>(a)], weight);
          column_of(p + a, lanes, s.length) = ArrayView<T>(logits, s.length);
          column_of(dp + a, lanes, s.length) = ArrayView<T>(gradients, s.length);
        }
        if (g.dweight.defined()) dweight[static_cast<size_t>(kv_head * in.weight.numel() + entry + n)] += delta;
        if (g.dvalues.defined()) {
          block_product(g.dvalues.data<T>() + line_of(s, chunk, kv_head, s.value_size), s.kv_heads * s.value_size,
                        Operand<T>{p, lanes}, dy, s.value_size, s.length, s.value_size, tile.count, true);
        }
        if (g.dkeys.defined()) {
          block_product(g.dkeys.data<T>() + line_of(s, chunk, kv_head, s.size), s.kv_heads * s.size,
                        Operand<T>{dp, lanes}, q, s.size, s.length, s.size, tile.count, true);
        }
        if (dq == nullptr) continue;
        block_product(dq, stride, Operand<T>{dp, lanes, true}, keys.data, keys.stride, tile.count, s.size, s.length,
                      written);
        written = true;
      }
    }
    for (int64_t a = 0; a < tile.count && dq != nullptr && !written; ++a) std::fill_n(dq + a * stride, s.size, T{0});
  }

  void run(const QueryRun& run, int64_t kv_head) const {
    for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
      for_query_tiles<T>(run, [&](const QueryRun& part) { tile(part, head); });
    }
  }
};

}  // namespace quire::cpu
