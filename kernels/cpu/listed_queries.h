// Attention to listed blocks by query: softmax over keys or landmarks.
#pragma once

#include <vector>

#include "kernels/cpu/rotate.h"
#include "kernels/listed_sizes.h"

namespace quire::cpu {

// A block that a query reads: number n of its list, and entry `entry` of all lists.
struct BlockRead {
  int32_t block, query, n, entry;
};

// The reads of the query heads of one key head, for some queries of a row, in the order of blocks, so that a block that
// several queries read is in the cache after the first. S: the stored type of keys and values.
template <typename T, typename S>
class Reads {
 public:
  using Line = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  using Lines = Eigen::Map<const RowMatrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

  // `queries`: indices in the whole call, with heads.
  Reads(const ops::ListedAttentionInputs& in, const ListedSizes& s, int64_t kv_head,
        const std::vector<int32_t>& queries)
      : in_(in), s_(s), kv_head_(kv_head) {
    for (const int32_t query : queries) {
      const int64_t line = query / s.heads;
      const int64_t list = in.list.defined() ? in.list.data<int32_t>()[line] : line % s.queries;
      QUIRE_CHECK(list < s.lists, "listed_attention: list {} of {}", list, s.lists);
      const int64_t head = s.list_heads == 1 ? 0 : query % s.heads;
      for (int64_t n = 0; n < s.chosen && list >= 0; ++n) {
        const int64_t entry = ((line / s.queries * s.lists + list) * s.list_heads + head) * s.chosen + n;
        const int32_t block = in.blocks.data<int32_t>()[entry];
        if (block < 0) continue;
        QUIRE_CHECK(block < s.blocks, "listed_attention: block {} of {}", block, s.blocks);
        const int64_t back = in.rotation.defined() ? in.rotation.data<int32_t>()[entry] : 0;
        QUIRE_CHECK(!in.table.defined() || (back >= 0 && back < in.table.dim(0)),
                    "listed_attention: {} blocks back in a table of {}", back, in.table.dim(0));
        all_.push_back({block, query, static_cast<int32_t>(n), static_cast<int32_t>(entry)});
      }
    }
    std::stable_sort(all_.begin(), all_.end(),
                     [](const BlockRead& a, const BlockRead& b) { return a.block < b.block; });
    rotated_ = scratch<T>(0, s.size);
    weights_ = scratch<T>(1, s.length);
    keys_ = scratch<T>(2, s.length * s.size);
    values_ = scratch<T>(3, s.length * s.value_size);
  }

  // Calls body(read, keys, values, weights, gate) for each: the weights of the regular keys within their block,
  // followed by 0 for a landmark, and the logit of the block among the others.
  template <typename Body>
  void for_each(Body&& body) const {
    int32_t loaded = -1;
    for (const BlockRead& read : all_) {
      const bool again = read.block == std::exchange(loaded, read.block);
      const Lines keys = lines(in_.keys, read.block, s_.size, keys_, again);
      const Lines values = lines(in_.values, read.block, s_.value_size, values_, again);
      const T* const q = in_.q.data<T>() + read.query * s_.size;
      if (in_.table.defined()) rotate(rotated_, q, angles(read), in_.table.dim(2), s_.size, false, in_.interleaved);
      ArrayView<T>(weights_, s_.length) =
          (keys * Eigen::Map<const Line>(in_.table.defined() ? rotated_ : q, s_.size)).array() *
          static_cast<T>(in_.scale);
      body(read, keys, values, weights_, gate());
    }
  }

  const T* angles(const BlockRead& read) const {
    const int64_t back = in_.rotation.data<int32_t>()[read.entry];
    return in_.table.data<T>() + back * 2 * in_.table.dim(2);
  }

 private:
  // Turns logits into weights and returns the gate.
  T gate() const {
    const int64_t regular = s_.length - (in_.landmarks ? 1 : 0);
    ArrayView<T> own(weights_, regular);
    const T top = regular > 0 ? own.maxCoeff() : T{0};
    if (!in_.landmarks && top == -std::numeric_limits<T>::infinity()) {
      own = T{0};
      return top;
    }
    own = (own - top).exp();
    const T sum = own.sum();
    own *= T{1} / sum;
    return in_.landmarks ? std::exchange(weights_[regular], T{0}) : top + std::log(sum);
  }

  // Returns the vectors in the type in which they are computed. again: the block is the same as in the previous call.
  Lines lines(const Tensor& stored, int64_t block, int64_t size, T* to, bool again) const {
    const S* const from = stored.data<S>() + (block * s_.length * s_.kv_heads + kv_head_) * size;
    if constexpr (std::is_same_v<S, T>) {
      return Lines(from, s_.length, size, Eigen::OuterStride<>(s_.kv_heads * size));
    } else {
      for (int64_t j = 0; j < s_.length && !again; ++j) {
        for (int64_t d = 0; d < size; ++d) {
          to[j * size + d] = static_cast<T>(static_cast<float>(from[j * s_.kv_heads * size + d]));
        }
      }
      return Lines(to, s_.length, size, Eigen::OuterStride<>(size));
    }
  }

  const ops::ListedAttentionInputs& in_;
  const ListedSizes& s_;
  int64_t kv_head_;
  std::vector<BlockRead> all_;
  T *rotated_, *weights_, *keys_, *values_;
};

// Calls body(reads, queries) for the query heads of a key head and groups of queries of a row, which are small enough
// to give work to every thread. The result of a query does not depend on its group.
template <typename T, typename S, typename Body>
void for_queries(const ops::ListedAttentionInputs& in, const ListedSizes& s, Body&& body) {
  constexpr int64_t kMaxReads = 8192;
  const int64_t group = s.group();
  const int64_t shares = ceil_div(2 * ThreadPool::current().threads(), s.rows * s.kv_heads);
  const int64_t max_queries = std::max<int64_t>(1, kMaxReads / std::max<int64_t>(1, group * s.chosen));
  const int64_t some = std::clamp<int64_t>(ceil_div(s.queries, shares), 1, max_queries);
  const int64_t tasks = ceil_div(s.queries, some);
  parallel_for(s.rows * s.kv_heads * tasks, [&](int64_t task) {
    const int64_t row = task / (s.kv_heads * tasks), kv_head = task / tasks % s.kv_heads;
    std::vector<int32_t> queries;
    for (int64_t t = task % tasks * some; t < std::min(s.queries, (task % tasks + 1) * some); ++t) {
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        queries.push_back(static_cast<int32_t>((row * s.queries + t) * s.heads + head));
      }
    }
    body(Reads<T, S>(in, s, kv_head, queries), queries);
  });
}

// Returns the index in [R, H, T] of a query of [R, T, H].
inline int64_t lse_line(const ListedSizes& s, int64_t query) {
  const int64_t head = query % s.heads, line = query / s.heads;
  return (line / s.queries * s.heads + head) * s.queries + line % s.queries;
}

template <typename T, typename S>
void attend_by_query(const Tensor& out, const Tensor& lse, const Tensor& mass, const ops::ListedAttentionInputs& in,
                     const ListedSizes& s) {
  using RowLine = Eigen::Matrix<T, 1, Eigen::Dynamic>;
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  for_queries<T, S>(in, s, [&](const Reads<T, S>& reads, const std::vector<int32_t>& queries) {
    // The result and the gate of each read; a query combines them in the order of its list.
    const auto entries = static_cast<int64_t>(queries.size()) * s.chosen;
    T* const given = scratch<T>(4, entries * s.value_size);
    T* const gates = scratch<T>(5, entries);
    std::fill(gates, gates + entries, kNone);
    const int64_t group = s.heads / s.kv_heads, first_line = queries.front() / s.heads;
    const auto entry_of = [&](const BlockRead& read) {
      return ((read.query / s.heads - first_line) * group + read.query % s.heads % group) * s.chosen + read.n;
    };
    reads.for_each([&](const BlockRead& read, const auto&, const auto& values, const T* weights, T gate) {
      const int64_t entry = entry_of(read);
      gates[entry] = gate;
      Eigen::Map<RowLine>(given + entry * s.value_size, s.value_size).noalias() =
          Eigen::Map<const RowLine>(weights, s.length) * values;
    });
    for (size_t i = 0; i < queries.size(); ++i) {
      T* const gate = gates + static_cast<int64_t>(i) * s.chosen;
      Eigen::Map<RowLine> y(out.data<T>() + queries[i] * s.value_size, s.value_size);
      y.setZero();
      const int64_t line = lse_line(s, queries[i]);
      if (mass.defined()) std::copy_n(gate, s.chosen, mass.data<T>() + line * s.chosen);
      T& log_sum = lse.data<T>()[line];
      log_sum = kNone;
      const T top = s.chosen > 0 ? *std::max_element(gate, gate + s.chosen) : kNone;
      if (top == kNone) continue;
      T sum = 0;
      for (int64_t n = 0; n < s.chosen; ++n) {
        if (gate[n] == kNone) continue;  // the result is empty
        const T share = std::exp(gate[n] - top);
        const T* const of_block = given + (static_cast<int64_t>(i) * s.chosen + n) * s.value_size;
        y += share * Eigen::Map<const RowLine>(of_block, s.value_size);
        sum += share;
      }
      y *= T{1} / sum;
      log_sum = top + std::log(sum);
    }
  });
}

template <typename T, typename S>
void gradients_by_query(const Tensor& dq, const Tensor& dout, const Tensor& dlse, const Tensor& out, const Tensor& lse,
                        const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  const int64_t regular = s.length - (in.landmarks ? 1 : 0);
  using Line = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  for_queries<T, S>(in, s, [&](const Reads<T, S>& reads, const std::vector<int32_t>& queries) {
    for (const int32_t query : queries) std::fill_n(dq.data<T>() + query * s.size, s.size, T{0});
    Eigen::Map<Line> ds(scratch<T>(4, s.length), s.length);
    T* const rotated = scratch<T>(5, 2 * s.size);
    reads.for_each([&](const BlockRead& read, const auto& keys, const auto& values, T* weights, T gate) {
      const int64_t line = lse_line(s, read.query);
      const T log_sum = lse.data<T>()[line];
      if (log_sum == -std::numeric_limits<T>::infinity()) return;
      const Eigen::Map<const Line> dy(dout.data<T>() + read.query * s.value_size, s.value_size);
      const Eigen::Map<const Line> y(out.data<T>() + read.query * s.value_size, s.value_size);
      const T delta = dy.dot(y) - (dlse.defined() ? dlse.data<T>()[line] : T{0});
      const T share = std::exp(gate - log_sum) * static_cast<T>(in.scale);
      ds = values * dy;
      const ArrayView<T> own_weights(weights, regular);
      ArrayView<T> own(ds.data(), regular);
      // With share a and weights P within the block, the gradients are a P (dw - sum of P dw) and a (sum of P dw -
      // delta).
      const T inner = (own_weights * own).sum();
      own = share * own_weights * (own - (in.landmarks ? inner : delta));
      if (in.landmarks) ds[regular] = share * (inner - delta);
      Eigen::Map<Line> back(rotated, s.size);
      back.noalias() = keys.transpose() * ds;
      if (in.table.defined()) {
        rotate(rotated + s.size, rotated, reads.angles(read), in.table.dim(2), s.size, true, in.interleaved);
      }
      Eigen::Map<Line>(dq.data<T>() + read.query * s.size, s.size) +=
          Eigen::Map<const Line>(in.table.defined() ? rotated + s.size : rotated, s.size);
    });
  });
}

}  // namespace quire::cpu
