// What the forward and backward attention kernels share: the walk over key blocks and the logits of one block.
#pragma once

#include <limits>

#include "kernels/attention.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

// Queries and keys per block: a block of logits and one of position terms stay in the second-level cache.
inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 128;
inline constexpr int64_t kTermBlock = kQueryBlock + kKeyBlock;

struct AttentionSizes {
  int64_t rows, queries, heads, kv_heads, size, value_size, slots, entries;

  explicit AttentionSizes(const ops::AttentionInputs& in)
      : rows(in.q.dim(0)),
        queries(in.q.dim(1)),
        heads(in.q.dim(2)),
        kv_heads(in.k.dim(2)),
        size(in.q.dim(3)),
        value_size(in.v.dim(3)),
        slots(in.cache_k.defined() ? in.cache_k.dim(1) : 0),
        entries(in.r.defined() ? in.r.dim(0) : (in.bias.defined() ? in.bias.dim(1) : 0)) {
    for (const Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.bias, &in.r, &in.u, &in.v_bias}) {
      QUIRE_CHECK(!t->defined() || (t->is_contiguous() && t->dtype() == in.q.dtype()),
                  "attention: {} must be contiguous and of one type", t->shape().to_string());
    }
    QUIRE_CHECK(heads % kv_heads == 0, "attention: {} query heads are no multiple of {} key heads", heads, kv_heads);
    QUIRE_CHECK(in.k.shape() == Shape({rows, queries, kv_heads, size}) &&
                    in.v.shape() == Shape({rows, queries, kv_heads, value_size}),
                "attention: q {}, k {}, v {}", in.q.shape().to_string(), in.k.shape().to_string(),
                in.v.shape().to_string());
    QUIRE_CHECK(in.first_visible.numel() == rows * queries, "attention: first_visible is {}",
                in.first_visible.shape().to_string());
    QUIRE_CHECK(slots == 0 || (in.cache_v.dim(1) == slots && in.cache_head.numel() == rows),
                "attention: cache_v {}, cache_head {}", in.cache_v.shape().to_string(),
                in.cache_head.shape().to_string());
    QUIRE_CHECK(
        !in.r.defined() || (in.u.defined() && in.v_bias.defined() && in.r.dim(1) == heads && in.r.dim(2) == size),
        "attention: r is {}", in.r.shape().to_string());
    QUIRE_CHECK(!in.bias.defined() || (in.bias.dim(0) == heads && in.bias.dim(1) == entries), "attention: bias is {}",
                in.bias.shape().to_string());
  }
};

// Keys at positions [position, position + count) lie one after the other in the segment or in the ring.
struct KeyBlock {
  int64_t position;
  int64_t count;
  bool cached;
  int64_t index;  // token index in the segment, or slot
};

// Calls body(KeyBlock) for keys at positions [low, high) in order of position.
template <typename Body>
void for_key_blocks(int64_t low, int64_t high, int64_t slots, int64_t head, Body&& body) {
  for (int64_t p = low; p < std::min<int64_t>(high, 0);) {
    const int64_t slot = (head + p + slots) % slots;
    const int64_t count = std::min({kKeyBlock, -p, slots - slot, high - p});
    body(KeyBlock{p, count, true, slot});
    p += count;
  }
  for (int64_t p = std::max<int64_t>(low, 0); p < high; p += kKeyBlock) {
    body(KeyBlock{p, std::min(kKeyBlock, high - p), false, p});
  }
}

// One block of queries of one row and head.
template <typename T>
class QueryBlock {
 public:
  QueryBlock(const ops::AttentionInputs& in, const AttentionSizes& s, int64_t row, int64_t head, int64_t first_query)
      : in_(in),
        s_(s),
        row_(row),
        head_(head),
        first_(first_query),
        count_(std::min(kQueryBlock, s.queries - first_query)),
        content_(scratch<T>(0, kQueryBlock * s.size)),
        position_(scratch<T>(1, kQueryBlock * s.size)),
        logits_(scratch<T>(2, kQueryBlock * kKeyBlock)),
        terms_(scratch<T>(3, kQueryBlock * kTermBlock)) {
    const int32_t* first_visible = in.first_visible.data<int32_t>() + row * s.queries + first_query;
    low_ = std::numeric_limits<int64_t>::max();
    high_ = std::numeric_limits<int64_t>::min();
    int64_t farthest = 0;
    for (int64_t a = 0; a < count_; ++a) {
      visible_begin_[a] = first_visible[a];
      visible_end_[a] = first_ + a + (in.attend_self ? 1 : 0);
      if (visible_begin_[a] >= visible_end_[a]) continue;
      low_ = std::min(low_, visible_begin_[a]);
      high_ = std::max(high_, visible_end_[a]);
      farthest = std::max(farthest, first_ + a - visible_begin_[a]);
    }
    QUIRE_CHECK(empty() || low_ >= -s.slots, "attention: position {} lies before the {} carried keys", low_, s.slots);
    QUIRE_CHECK(s.entries == 0 || farthest < s.entries, "attention: distance {} is outside a table of {}", farthest,
                s.entries);
    load(content_, in.u);
    if (in.r.defined()) load(position_, in.v_bias);
  }

  bool empty() const { return low_ >= high_; }
  int64_t count() const { return count_; }
  int64_t low() const { return low_; }
  int64_t high() const { return high_; }
  int64_t kv_head() const { return head_ / (s_.heads / s_.kv_heads); }

  ConstMatrixView<T> content() const { return {content_, count_, s_.size, Eigen::OuterStride<>(s_.size)}; }
  ConstMatrixView<T> positional() const { return {position_, count_, s_.size, Eigen::OuterStride<>(s_.size)}; }

  ConstMatrixView<T> keys(const KeyBlock& b) const { return part(b.cached ? in_.cache_k : in_.k, b, s_.size); }
  ConstMatrixView<T> values(const KeyBlock& b) const { return part(b.cached ? in_.cache_v : in_.v, b, s_.value_size); }

  // Visible columns of query a in a block: [begin, end).
  int64_t column_begin(int64_t a, const KeyBlock& b) const {
    return std::max<int64_t>(visible_begin_[a] - b.position, 0);
  }
  int64_t column_end(int64_t a, const KeyBlock& b) const { return std::min(visible_end_[a] - b.position, b.count); }

  // Position terms: column c of the block of terms belongs to distance largest - c. Behind a window the last query and
  // the first key are further apart than the table reaches; no such pair is visible.
  int64_t largest_distance(const KeyBlock& b) const {
    return std::min(first_ + count_ - 1 - b.position, s_.entries - 1);
  }
  int64_t term_count(const KeyBlock& b) const {
    const int64_t smallest = std::max<int64_t>(0, first_ - (b.position + b.count - 1));
    return std::max<int64_t>(0, largest_distance(b) - smallest + 1);
  }
  // The column for query a and key 0 of the block; keys follow. Below zero where key 0 is beyond the table.
  int64_t term_column(int64_t a, const KeyBlock& b) const { return largest_distance(b) - (first_ + a - b.position); }
  // First row of the table that the block reads.
  int64_t table_row(const KeyBlock& b) const { return s_.entries - 1 - largest_distance(b); }
  ConstMatrixView<T> table(const KeyBlock& b) const {
    return {in_.r.template data<T>() + (table_row(b) * s_.heads + head_) * s_.size, term_count(b), s_.size,
            Eigen::OuterStride<>(s_.heads * s_.size)};
  }
  // Entry of the bias table for query a and key 0 of the block; keys follow.
  int64_t bias_index(int64_t a, const KeyBlock& b) const { return s_.entries - 1 - (first_ + a - b.position); }

  // Logits [count, b.count]; only visible columns hold meaning.
  MatrixView<T> logits(const KeyBlock& b) {
    MatrixView<T> out(logits_, count_, b.count, Eigen::OuterStride<>(kKeyBlock));
    out.noalias() = content() * keys(b).transpose();
    if (in_.r.defined()) {
      MatrixView<T> terms(terms_, count_, term_count(b), Eigen::OuterStride<>(kTermBlock));
      terms.noalias() = positional() * table(b).transpose();
    }
    for (int64_t a = 0; a < count_; ++a) {
      const int64_t begin = column_begin(a, b);
      const int64_t width = column_end(a, b) - begin;
      if (width <= 0) continue;
      ArrayView<T> row(logits_ + a * kKeyBlock + begin, width);
      if (in_.r.defined()) row += ConstArrayView<T>(terms_ + a * kTermBlock + term_column(a, b) + begin, width);
      if (in_.bias.defined()) {
        row += ConstArrayView<T>(in_.bias.template data<T>() + head_ * s_.entries + bias_index(a, b) + begin, width);
      }
    }
    return out;
  }

  // Multiplies a row of probabilities (or their gradients) by mask / (1 - p).
  void apply_dropout(T* row, int64_t a, const KeyBlock& b) const {
    const auto threshold = static_cast<uint64_t>(in_.dropout * 4294967296.0);
    const T kept = static_cast<T>(1.0 / (1.0 - in_.dropout));
    const auto base = static_cast<uint64_t>(head_ * (s_.slots + s_.queries));
    uint64_t group = std::numeric_limits<uint64_t>::max();
    std::array<uint32_t, 4> bits{};
    for (int64_t j = column_begin(a, b); j < column_end(a, b); ++j) {
      const uint64_t element = base + static_cast<uint64_t>(first_ + a - b.position - j);
      if (element / 4 != group) {
        group = element / 4;
        bits = philox(in_.key, in_.scope, static_cast<uint32_t>(in_.first_row + row_),
                      static_cast<uint32_t>(first_ + a), static_cast<uint32_t>(group));
      }
      row[j] = bits[element % 4] >= threshold ? row[j] * kept : T{0};
    }
  }

 private:
  void load(T* to, const Tensor& bias) const {
    const T* q = in_.q.template data<T>() + ((row_ * s_.queries + first_) * s_.heads + head_) * s_.size;
    const T factor = static_cast<T>(in_.scale);
    for (int64_t a = 0; a < count_; ++a) {
      const ConstArrayView<T> from(q + a * s_.heads * s_.size, s_.size);
      ArrayView<T> out(to + a * s_.size, s_.size);
      if (bias.defined()) {
        out = (from + ConstArrayView<T>(bias.template data<T>() + head_ * s_.size, s_.size)) * factor;
      } else {
        out = from * factor;
      }
    }
  }

  ConstMatrixView<T> part(const Tensor& keys, const KeyBlock& b, int64_t size) const {
    const int64_t per_row = b.cached ? s_.slots : s_.queries;
    return {keys.template data<T>() + ((row_ * per_row + b.index) * s_.kv_heads + kv_head()) * size, b.count, size,
            Eigen::OuterStride<>(s_.kv_heads * size)};
  }

  const ops::AttentionInputs& in_;
  const AttentionSizes& s_;
  int64_t row_, head_, first_, count_;
  int64_t low_, high_;
  std::array<int64_t, kQueryBlock> visible_begin_, visible_end_;
  T* content_;   // scale * (q + u)       [count, D]
  T* position_;  // scale * (q + v_bias)  [count, D]
  T* logits_;
  T* terms_;
};

}  // namespace quire::cpu
