// The shared part of the forward and backward attention kernels: the loop over key blocks and the logits of one block.
#pragma once

#include <limits>

#include "kernels/attention_sizes.h"
#include "kernels/cpu/product.h"

namespace quire::cpu {

// Queries and keys per block. Logits are stored transposed, keys by queries: every product then reads keys, values and
// gradients in place, and softmax runs along queries, one to a vector lane.
inline constexpr int64_t kQueryBlock = 64;
inline constexpr int64_t kKeyBlock = 128;
// Position terms are stored by query. The margin takes terms of distances beyond the table, before a row, and the lanes
// that whole vectors write after its end.
inline constexpr int64_t kTermMargin = kQueryBlock + 16;
// The terms of all keys that a block of queries sees are computed at once when there are at most this many keys.
// Otherwise they are computed for one block of keys after the other, which computes one and a half times as many terms
// as there are pairs.
inline constexpr int64_t kMaxTerms = 1024;
// Padding of a bias by distance before its first and after its last entry, for distances of invisible pairs.
inline constexpr int64_t kBiasMargin = kQueryBlock + 16;

// Keys at positions [position, position + count), which are adjacent in the segment or in the ring.
struct KeyBlock {
  int64_t position;
  int64_t count;
  bool cached;
  int64_t index;  // token index in the segment, or slot
  bool terms;     // some query is near enough for position terms
};

// Calls body(KeyBlock) for keys at positions [low, high) in order of position.
template <typename Body>
void for_key_blocks(int64_t low, int64_t high, int64_t slots, int64_t head, bool terms, Body&& body) {
  for (int64_t p = low; p < std::min<int64_t>(high, 0);) {
    const int64_t slot = (head + p + slots) % slots;
    const int64_t count = std::min({kKeyBlock, -p, slots - slot, high - p});
    body(KeyBlock{p, count, true, slot, terms});
    p += count;
  }
  for (int64_t p = std::max<int64_t>(low, 0); p < high; p += kKeyBlock) {
    body(KeyBlock{p, std::min(kKeyBlock, high - p), false, p, terms});
  }
}

// The tables of position terms in the order in which blocks read them.
template <typename T>
struct PositionTerms {
  // [H, entries + 2 margins] by distance.
  Tensor bias;
  // [H, D, padded entries] by table row.
  Tensor r;

  PositionTerms(const ops::AttentionInputs& in, const AttentionSizes& s) {
    if (in.bias.defined()) {
      bias = Tensor::zeros({s.heads, s.entries + 2 * kBiasMargin}, in.q.dtype());
      for (int64_t h = 0; h < s.heads; ++h) {
        const T* from = in.bias.template data<T>() + h * s.entries;
        std::reverse_copy(from, from + s.entries, bias.template data<T>() + h * bias.dim(1) + kBiasMargin);
      }
    }
    if (in.r.defined()) {
      constexpr int64_t kWidth = kLanes<T>;
      const int64_t padded = ceil_div(s.entries, kWidth) * kWidth + kPanel<T>;
      r = Tensor::zeros({s.heads, s.size, padded}, in.q.dtype());
      parallel_for(s.heads, [&](int64_t h) {
        for (int64_t n = 0; n < s.entries; n += kWidth) {
          transpose_rows(r.template data<T>() + h * s.size * padded + n, padded,
                         in.r.template data<T>() + (n * s.heads + h) * s.size, s.heads * s.size,
                         std::min(kWidth, s.entries - n), s.size);
        }
      });
    }
  }
};

// One block of queries of one row and head.
template <typename T>
class QueryBlock {
 public:
  static constexpr int64_t kWidth = kLanes<T>;

  QueryBlock(const ops::AttentionInputs& in, const AttentionSizes& s, const PositionTerms<T>& tables, int64_t row,
             int64_t head, int64_t first_query)
      : in_(in),
        s_(s),
        tables_(tables),
        row_(row),
        head_(head),
        first_(first_query),
        count_(std::min(kQueryBlock, s.queries - first_query)),
        lanes_(ceil_div(count_, kWidth) * kWidth),
        content_(scratch<T>(0, kQueryBlock * s.size)),
        position_(in.r.defined() ? scratch<T>(1, kQueryBlock * s.size) : nullptr),
        logits_(scratch<T>(2, kQueryBlock * kKeyBlock)),
        content_by_feature_(scratch<T>(4, kQueryBlock * s.size)) {
    const int32_t* first_visible = in.first_visible.data<int32_t>() + row * s.queries + first_query;
    low_ = std::numeric_limits<int64_t>::max();
    high_ = std::numeric_limits<int64_t>::min();
    const int32_t* last_visible =
        in.last_visible.defined() ? in.last_visible.data<int32_t>() + row * s.queries + first_query : nullptr;
    int64_t farthest = 0;
    visible_begin_.fill(0);
    visible_end_.fill(std::numeric_limits<int64_t>::min());
    for (int64_t a = 0; a < count_; ++a) {
      visible_begin_[a] = first_visible[a];
      visible_end_[a] = last_visible == nullptr ? first_ + a + (in.attend_self ? 1 : 0) : last_visible[a] + 1;
      if (visible_begin_[a] >= visible_end_[a]) continue;
      low_ = std::min(low_, visible_begin_[a]);
      high_ = std::max(high_, visible_end_[a]);
      farthest = std::max(farthest, first_ + a - visible_begin_[a]);
    }
    QUIRE_CHECK(empty() || low_ >= -s.slots, "attention: position {} lies before the {} carried keys", low_, s.slots);
    QUIRE_CHECK(empty() || high_ <= s.queries, "attention: position {} lies behind the last of {} keys", high_ - 1,
                s.queries);
    QUIRE_CHECK(s.entries == 0 || in.terms_end || farthest < s.entries,
                "attention: distance {} is outside a table of {}", farthest, s.entries);
    load(content_, in.u);
    if (in.r.defined()) load(position_, in.v_bias);
    by_feature(content_by_feature_, content_, s.size, s.size);
    if (empty() || !in.r.defined()) return;
    const int64_t reached = in.terms_end ? std::clamp(first_ - s.entries + 1, low_, high_) : low_;
    all_terms_ = {reached, high_ - reached, false, 0, true};
    at_once_ = all_terms_.count <= kMaxTerms;
    term_stride_ = kTermMargin + kQueryBlock + (at_once_ ? all_terms_.count : kKeyBlock) + 16;
    terms_ = scratch<T>(3, term_buffer());
    if (at_once_ && all_terms_.count > 0) compute_terms(all_terms_);
  }

  bool empty() const { return low_ >= high_; }
  int64_t count() const { return count_; }
  int64_t lanes() const { return lanes_; }  // count, in whole vectors
  int64_t low() const { return low_; }
  int64_t high() const { return high_; }

  // Calls body(KeyBlock) for the keys that the queries see. When the tables end, keys that are beyond them for every
  // query come in separate blocks, without terms.
  template <typename Body>
  void for_visible_blocks(Body&& body) const {
    if (empty()) return;
    const int64_t ring_head = s_.slots > 0 ? in_.cache_head.data<int32_t>()[row_] : 0;
    const int64_t reached = in_.terms_end ? std::clamp(first_ - s_.entries + 1, low_, high_) : low_;
    for_key_blocks(low_, reached, s_.slots, ring_head, false, body);
    for_key_blocks(reached, high_, s_.slots, ring_head, true, body);
  }
  int64_t kv_head() const { return head_ / (s_.heads / s_.kv_heads); }

  const T* content() const { return content_; }      // scale * (q + u)       [count, D]
  const T* positional() const { return position_; }  // scale * (q + v_bias)  [count, D]

  int64_t key_stride() const { return s_.kv_heads * s_.size; }
  int64_t value_stride() const { return s_.kv_heads * s_.value_size; }
  const T* keys(const KeyBlock& b) const { return part(b.cached ? in_.cache_k : in_.k, b, s_.size); }
  const T* values(const KeyBlock& b) const { return part(b.cached ? in_.cache_v : in_.v, b, s_.value_size); }

  // to [size, kQueryBlock] = transposed from [count, size]; lanes beyond the queries are zero.
  void by_feature(T* to, const T* from, int64_t stride, int64_t size) const {
    for (int64_t a = 0; a < lanes_; a += kWidth) {
      transpose_rows(to + a, kQueryBlock, from + a * stride, stride, std::min(kWidth, count_ - a), size);
    }
  }

  // Return the visible keys of query a in a block: [begin, end).
  int64_t key_begin(int64_t a, const KeyBlock& b) const { return std::max<int64_t>(visible_begin_[a] - b.position, 0); }
  int64_t key_end(int64_t a, const KeyBlock& b) const {
    return visible_begin_[a] < visible_end_[a] ? std::min(visible_end_[a] - b.position, b.count) : 0;
  }

  // Returns the largest distance of a block; column c of the block of terms belongs to distance largest - c. With a
  // window, the distance of the last query and the first key may exceed the table: such a pair is not visible, or the
  // tables end before it.
  int64_t largest_distance(const KeyBlock& b) const {
    return std::min(first_ + count_ - 1 - b.position, s_.entries - 1);
  }
  int64_t term_count(const KeyBlock& b) const {
    const int64_t smallest = std::max<int64_t>(0, first_ - (b.position + b.count - 1));
    return std::max<int64_t>(0, largest_distance(b) - smallest + 1);
  }
  // The terms of several blocks may be computed together: those of all visible keys, or only those of the block.
  bool terms_at_once() const { return at_once_; }
  const KeyBlock& all_terms() const { return all_terms_; }
  int64_t term_stride() const { return term_stride_; }
  int64_t term_buffer() const { return kQueryBlock * term_stride_ + kTermMargin; }
  // Returns the offset of the term of query a and key 0 of the block, in a buffer with term_stride() per query; keys
  // follow.
  int64_t term_offset(int64_t a, const KeyBlock& b) const {
    return a * term_stride_ + kTermMargin + largest_distance(at_once_ ? all_terms_ : b) - (first_ + a - b.position);
  }
  // Returns the first row of the table that the block reads.
  int64_t table_row(const KeyBlock& b) const { return s_.entries - 1 - largest_distance(b); }
  const T* table(const KeyBlock& b) const {
    return in_.r.template data<T>() + (table_row(b) * s_.heads + head_) * s_.size;
  }
  // Returns the entry of the bias by distance for query 0 and key j of the block; queries follow.
  int64_t bias_offset(int64_t j, const KeyBlock& b) const { return kBiasMargin + first_ - (b.position + j); }

  // Returns logits [b.count, kQueryBlock]: -inf where a query does not see a key.
  T* logits(const KeyBlock& b) {
    block_product(logits_, kQueryBlock, Operand<T>{keys(b), key_stride()}, content_by_feature_, kQueryBlock, b.count,
                  lanes_, s_.size, false);
    if (in_.r.defined() && b.terms) add_terms(b);
    if (in_.bias.defined() && b.terms) {
      const T* bias = tables_.bias.template data<T>() + head_ * tables_.bias.dim(1);
      for (int64_t j = 0; j < b.count; ++j) {
        const T* from = bias + bias_offset(j, b);
        T* const to = logits_ + j * kQueryBlock;
        for (int64_t a = 0; a < lanes_; a += kWidth) {
          store_vector(to + a, load_vector(to + a) + load_vector(from + a));
        }
      }
    }
    hide(b);
    return logits_;
  }

  // Multiplies probabilities (or their gradients) [b.count, kQueryBlock] by mask / (1 - p).
  void apply_dropout(T* probabilities, const KeyBlock& b) const {
    const auto threshold = static_cast<uint64_t>(in_.dropout * 4294967296.0);
    const T kept = static_cast<T>(1.0 / (1.0 - in_.dropout));
    const int64_t base = head_ * s_.distances + s_.first_distance;
    for (int64_t a = 0; a < count_; ++a) {
      uint64_t group = std::numeric_limits<uint64_t>::max();
      std::array<uint32_t, 4> bits{};
      for (int64_t j = key_begin(a, b); j < key_end(a, b); ++j) {
        const auto element = static_cast<uint64_t>(base + first_ + a - b.position - j);
        if (element / 4 != group) {
          group = element / 4;
          bits = philox(in_.key, in_.scope, static_cast<uint32_t>(in_.first_row + row_),
                        static_cast<uint32_t>(first_ + a), static_cast<uint32_t>(group));
        }
        T& value = probabilities[j * kQueryBlock + a];
        value = bits[element % 4] >= threshold ? value * kept : T{0};
      }
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

  const T* part(const Tensor& keys, const KeyBlock& b, int64_t size) const {
    const int64_t per_row = b.cached ? s_.slots : s_.queries;
    return keys.template data<T>() + ((row_ * per_row + b.index) * s_.kv_heads + kv_head()) * size;
  }

  void compute_terms(const KeyBlock& b) {
    const int64_t entries = tables_.r.dim(2);
    const int64_t columns = ceil_div(term_count(b), kWidth) * kWidth;
    block_product(terms_ + kTermMargin, term_stride_, Operand<T>{position_, s_.size},
                  tables_.r.template data<T>() + head_ * s_.size * entries + table_row(b), entries, count_, columns,
                  s_.size, false);
    if (in_.terms_end && first_ + count_ - 1 - b.position >= s_.entries) {
      for (int64_t a = 0; a < count_; ++a) std::fill_n(terms_ + a * term_stride_, kTermMargin, T{0});
    }
  }

  // Adds terms to logits. Terms are stored by query and shifted by one key from query to query.
  void add_terms(const KeyBlock& b) {
    if (!at_once_) compute_terms(b);
    for (int64_t a = 0; a < lanes_; a += kWidth) {
      for (int64_t j = 0; j < b.count; j += kWidth) {
        Vector<T> x[kWidth];
        for (int64_t i = 0; i < kWidth; ++i) {
          x[i] = a + i < count_ ? load_vector(terms_ + term_offset(a + i, b) + j) : Vector<T>{};
        }
        transpose_square<T>(x);
        const int64_t rows = std::min(kWidth, b.count - j);
        for (int64_t i = 0; i < rows; ++i) {
          T* const to = logits_ + (j + i) * kQueryBlock + a;
          store_vector(to, load_vector(to) + x[i]);
        }
      }
    }
  }

  void hide(const KeyBlock& b) {
    std::array<int32_t, kQueryBlock> begin{};
    std::array<int32_t, kQueryBlock> end{};
    bool all = count_ == lanes_;
    for (int64_t a = 0; a < count_; ++a) {
      begin[a] = static_cast<int32_t>(std::min(key_begin(a, b), b.count));
      end[a] = static_cast<int32_t>(std::max<int64_t>(key_end(a, b), 0));
      all = all && begin[a] == 0 && end[a] == b.count;
    }
    if (all) return;
    for (int32_t j = 0; j < static_cast<int32_t>(b.count); ++j) {
      T* const row = logits_ + j * kQueryBlock;
      for (int64_t a = 0; a < lanes_; ++a) {
        // There is no branch, so that the compiler vectorises the loop.
        const int visible = static_cast<int>(j >= begin[a]) & static_cast<int>(j < end[a]);
        row[a] = visible != 0 ? row[a] : -std::numeric_limits<T>::infinity();
      }
    }
  }

  const ops::AttentionInputs& in_;
  const AttentionSizes& s_;
  const PositionTerms<T>& tables_;
  int64_t row_, head_, first_, count_, lanes_;
  int64_t low_, high_;
  std::array<int64_t, kQueryBlock> visible_begin_, visible_end_;
  T* content_;
  T* position_;
  T* logits_;
  T* terms_ = nullptr;
  T* content_by_feature_;  // [D, kQueryBlock]
  KeyBlock all_terms_{};
  bool at_once_ = false;
  int64_t term_stride_ = 0;
};

}  // namespace quire::cpu
