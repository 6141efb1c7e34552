// The backward pass of attention to listed blocks, by block.
#pragma once

#include <limits>

#include "kernels/cpu/listed_reads.h"

namespace quire::cpu {

// With the gradient dw of the weight that a key has, the gradient of its logit is
//
//   softmax: p (dw - delta), delta = dout.out - dlse, with the softmax p over all keys;
//   landmarks and weights: share * P (dw - inner), inner = sum of P dw, with the softmax P within the block. The share
//   is that of the landmark, whose own logit has share * (inner - delta), or the weight, which has the gradient inner.
template <typename T>
struct ListedBackward {
  const ops::ListedAttentionGradients& g;
  const Tensor& dout;
  const Tensor& dlse;
  const Tensor& out;
  const Tensor& lse;
  const ListedTask<T>& task;
  T* dweight;  // of the shape of weight, or null

  // The values of a tile by lane.
  struct Lanes {
    T *log_sum, *share, *delta, *inner;

    explicit Lanes(int64_t lanes, int slot) : log_sum(scratch<T>(slot, 4 * lanes)) {
      share = log_sum + lanes;
      delta = share + lanes;
      inner = delta + lanes;
      std::fill_n(log_sum, 4 * lanes, T{0});
    }
  };

  static constexpr T kNone = -std::numeric_limits<T>::infinity();

  // Returns the log of the sum of exponentials within a block.
  static Vector<T> log_sum_of(const T* x, int64_t lanes, int64_t regular) {
    Vector<T> top = std::numeric_limits<T>::lowest() - Vector<T>{}, sum{};
    for (int64_t j = 0; j < regular; ++j) top = larger<T>(top, load_vector(x + j * lanes));
    for (int64_t j = 0; j < regular; ++j) sum += exponential<T>(load_vector(x + j * lanes) - top);
    Eigen::Array<T, kLanes<T>, 1> log;
    store_vector(log.data(), sum);
    log = log.log();
    // When all logits are -inf, 0 makes their exponentials zero.
    return sum == Vector<T>{} ? Vector<T>{} : top + load_vector(log.data());
  }

  // p [L, lanes]: logits become what values are weighted by. dp: gradients of weights become those of q.k.
  void softmax_gradient(T* p, T* dp, const Lanes& of, int64_t lanes, int64_t regular) const {
    const T scale = static_cast<T>(task.in.scale);
    const bool whole = !task.in.landmarks && !task.in.weight.defined();
    for (int64_t a = 0; a < lanes; a += kLanes<T>) {
      T* const x = p + a;
      T* const dx = dp + a;
      Vector<T> log_sum = load_vector(of.log_sum + a), share = load_vector(of.share + a);
      Vector<T> taken = load_vector(of.delta + a);
      if (!whole) {
        T* const mark = x + regular * lanes;
        if (task.in.landmarks) {
          share = exponential<T>(load_vector(mark) - log_sum) * share;
          log_sum = log_sum_of(x, lanes, regular);
        }
        Vector<T> inner{};
        for (int64_t j = 0; j < regular; ++j) {
          const Vector<T> value = exponential<T>(load_vector(x + j * lanes) - log_sum);
          store_vector(x + j * lanes, value);
          inner += value * load_vector(dx + j * lanes);
        }
        if (task.in.landmarks) store_vector(mark, Vector<T>{});
        if (task.in.landmarks) store_vector(dx + regular * lanes, share * (inner - taken) * scale);
        store_vector(of.inner + a, inner);
        taken = inner;
      }
      for (int64_t j = 0; j < regular; ++j) {
        const Vector<T> own = load_vector(x + j * lanes);
        const Vector<T> weighted = (whole ? exponential<T>(own - log_sum) : own) * share;
        store_vector(x + j * lanes, weighted);
        store_vector(dx + j * lanes, weighted * scale * (load_vector(dx + j * lanes) - taken));
      }
    }
  }

  // Returns the place in a gradient of keys or values of a block's kind; null: it is constant.
  T* place_in(const Tensor& stored, const Tensor& own, int32_t block, int64_t size) const {
    const Tensor& all = block < task.s.blocks ? stored : own;
    return all.defined() ? all.data<T>() + task.place_of(block, size) : nullptr;
  }

  void load(const Lanes& of, const Read* reads, int64_t count, const std::vector<T>& deltas, size_t first) const {
    const ops::ListedAttentionInputs& in = task.in;
    const bool weighted = in.weight.defined();
    const T* const log_sums = lse.data<T>();
    const T* const weights = weighted ? in.weight.data<T>() : nullptr;
    task.for_each_line(reads, count, [&](const auto& x) {
      const T log_sum = log_sums[weighted ? x.by_head * task.s.chosen + x.n : x.by_head];
      of.log_sum[x.lane] = log_sum == kNone ? T{0} : log_sum;
      of.share[x.lane] = weighted ? weights[task.weight_of(x)] : log_sum == kNone ? T{0} : T{1};
      of.delta[x.lane] = weighted ? T{0} : deltas[static_cast<size_t>(x.line) - first];
    });
  }

  // Returns delta of the lines of a part, from line `first` on.
  std::vector<T> deltas_of(const ListedPart& part, size_t first) const {
    const ListedSizes& s = task.s;
    if (task.in.weight.defined()) return {};
    std::vector<T> deltas(static_cast<size_t>((part.last - part.first) * s.heads));
    part.for_each_line(s, [&](int64_t line) {
      const ConstArrayView<T> dy(dout.data<T>() + line * s.value_size, s.value_size);
      const ConstArrayView<T> y(out.data<T>() + line * s.value_size, s.value_size);
      const T dsum = dlse.defined() ? dlse.data<T>()[task.by_head(line)] : T{0};
      deltas[static_cast<size_t>(line) - first] = (dy * y).sum() - dsum;
    });
    return deltas;
  }

  void run(const ListedPart& part) const {
    const ListedSizes& s = task.s;
    const int64_t max_lanes = task.max_lanes();
    T* const packed = scratch<T>(0, max_lanes * s.size);
    T* const packed_dy = scratch<T>(1, max_lanes * s.value_size);
    T* const q_by_feature = scratch<T>(2, max_lanes * s.size);
    T* const dy_by_feature = scratch<T>(3, max_lanes * s.value_size);
    T* const p = scratch<T>(4, max_lanes * s.length);
    T* const dp = scratch<T>(5, max_lanes * s.length);
    T* const dq = scratch<T>(6, max_lanes * s.size);
    const Lanes of(max_lanes, 7);
    const auto first_line = static_cast<size_t>((part.row * s.queries + part.first) * s.heads);
    const std::vector<T> deltas = deltas_of(part, first_line);
    task.for_each_tile([&](const Read* reads, int64_t count, int64_t lanes) {
      const int32_t block = reads->block;
      const int64_t queries = count * s.together(), length = task.length(block);
      const int64_t regular = length - (task.in.landmarks ? 1 : 0);
      const Operand<T> q = task.queries(packed, reads, count);
      const Operand<T> dy = task.lines_of(packed_dy, dout.data<T>(), reads, count, s.value_size);
      task.turn(q_by_feature, lanes, q, queries, s.size, static_cast<T>(task.in.scale));
      task.turn(dy_by_feature, lanes, dy, queries, s.value_size, T{1});
      load(of, reads, count, deltas, first_line);
      const Operand<T> keys = task.keys(block, 8), values = task.values(block, 9);
      block_product(p, lanes, keys, q_by_feature, lanes, length, lanes, s.size, false);
      block_product(dp, lanes, values, dy_by_feature, lanes, regular, lanes, s.value_size, false);
      softmax_gradient(p, dp, of, lanes, regular);
      if (dweight != nullptr) {
        task.for_each_line(reads, count, [&](const auto& x) { dweight[task.weight_of(x)] += of.inner[x.lane]; });
      }
      if (T* const to = place_in(g.dvalues, g.down_values, block, s.value_size); to != nullptr) {
        block_product(to, s.kv_heads * s.value_size, Operand<T>{p, lanes}, dy.data, dy.stride, regular, s.value_size,
                      queries, true);
      }
      if (T* const to = place_in(g.dkeys, g.down_keys, block, s.size); to != nullptr) {
        block_product(to, s.kv_heads * s.size, Operand<T>{dp, lanes}, q.data, q.stride, length, s.size, queries, true);
      }
      if (!g.dq.defined()) return;
      task.prefetch(g.dq.data<T>(), reads, count, s.size);
      if (!task.in.table.defined()) {
        task.add_product(g.dq.data<T>(), dp, lanes, keys, length, reads, count, s.size, dq);
        return;
      }
      block_product(dq, s.size, Operand<T>{dp, lanes, true}, keys.data, keys.stride, queries, s.size, length, false);
      task.rotate_queries(dq, reads, count, true);
      task.add(g.dq.data<T>(), dq, reads, count, s.size);
    });
  }
};

}  // namespace quire::cpu
