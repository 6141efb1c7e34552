// The shared part of the forward and backward kernels of attention to blocks: the blocks of a row, tiles of whole
// blocks, and the probabilities of a tile.
#pragma once

#include <limits>
#include <vector>

#include "kernels/block_sizes.h"
#include "kernels/cpu/product.h"

namespace quire::cpu {

// The queries of a tile, one per vector lane, and the keys of a tile unless a single block has more.
inline constexpr int64_t kBlockQueries = 64;
inline constexpr int64_t kBlockKeys = 128;

// Keys [begin, end) of a row. The regular keys come first; the landmark, if there is one, is the last key.
struct KeyGroup {
  int32_t number;
  int64_t begin, end;
  bool landmark;
  bool closed;  // later queries do not see it
  int64_t regular() const { return end - begin - (landmark ? 1 : 0); }
};

// Returns the blocks of a row, in order, without keys that no query sees.
inline std::vector<KeyGroup> groups_of_row(const ops::BlockAttentionInputs& in, const BlockSizes& s, int64_t row) {
  const int32_t* const number = in.block.data<int32_t>() + row * s.keys;
  const uint8_t* const landmark = in.landmark.defined() ? in.landmark.data<uint8_t>() + row * s.keys : nullptr;
  std::vector<KeyGroup> groups;
  for (int64_t j = 0; j < s.keys; ++j) {
    if (number[j] < 0) continue;
    const bool goes_on = !groups.empty() && groups.back().number == number[j];
    QUIRE_CHECK(groups.empty() || groups.back().number <= number[j], "block_attention: block {} follows block {}",
                number[j], groups.back().number);
    QUIRE_CHECK(!goes_on || groups.back().end == j, "block_attention: block {} of row {} has a gap before key {}",
                number[j], row, j);
    if (!goes_on) groups.push_back({number[j], j, j, false, false});
    QUIRE_CHECK(!groups.back().landmark, "block_attention: key {} of row {} follows the landmark of its block", j, row);
    groups.back().end = j + 1;
    groups.back().landmark = landmark != nullptr && landmark[j] != 0;
    groups.back().closed = landmark != nullptr && landmark[j] != 1;
  }
  return groups;
}

// Consecutive blocks whose logits are computed together: groups [first, last) of the row.
struct KeyTile {
  size_t first, last;
  int64_t begin, count;  // keys
};

// A block of queries of one row and head, and tiles of the keys it sees. Logits are stored by key, with queries along
// lanes.
template <typename T>
class BlockTiles {
 public:
  static constexpr int64_t kWidth = kLanes<T>;

  BlockTiles(const ops::BlockAttentionInputs& in, const BlockSizes& s, const std::vector<KeyGroup>& groups, int64_t row,
             int64_t head, int64_t first_query)
      : in_(in),
        s_(s),
        groups_(groups),
        row_(row),
        head_(head),
        first_(first_query),
        count_(std::min(kBlockQueries, s.queries - first_query)),
        lanes_(ceil_div(count_, kWidth) * kWidth),
        content_(scratch<T>(0, kBlockQueries * s.size)),
        by_feature_(scratch<T>(1, kBlockQueries * s.size)) {
    const T* const q = in.q.data<T>() + ((row * s.queries + first_query) * s.heads + head) * s.size;
    for (int64_t a = 0; a < count_; ++a) {
      ArrayView<T>(content_ + a * s.size, s.size) =
          ConstArrayView<T>(q + a * s.heads * s.size, s.size) * static_cast<T>(in.scale);
    }
    transpose_queries(by_feature_, content_, s.size, s.size);
    const int32_t* const first = in.first.data<int32_t>() + row * s.queries + first_query;
    const int32_t* const number = in.block.data<int32_t>() + row * s.keys + s.before() + first_query;
    for (int64_t a = 0; a < kBlockQueries; ++a) {
      own_[a] = a < count_ ? number[a] : -1;
      earliest_[a] = a < count_ && own_[a] >= 0 ? first[a] : std::numeric_limits<int32_t>::max();
    }
    make_tiles();
    size_t max_length = 0;
    int64_t keys = 0;
    for (const KeyTile& tile : tiles_) {
      max_length = std::max(max_length, tile.last - tile.first);
      keys = std::max(keys, tile.count);
    }
    const auto lines = static_cast<int64_t>(max_length) * kBlockQueries;
    logits_ = scratch<T>(2, keys * kBlockQueries);
    gates_ = scratch<T>(3, 4 * lines);
    masses_ = gates_ + lines;
    scales_ = masses_ + lines;
    inverses_ = scales_ + lines;
  }

  int64_t count() const { return count_; }
  int64_t lanes() const { return lanes_; }  // count, in whole vectors
  const std::vector<KeyTile>& tiles() const { return tiles_; }
  const KeyGroup& group(size_t index) const { return groups_[index]; }

  const T* content() const { return content_; }  // scale * q [count, D]
  const T* keys(const KeyTile& tile) const { return line(in_.k, tile, s_.size); }
  const T* values(const KeyTile& tile) const { return line(in_.v, tile, s_.value_size); }
  int64_t key_stride() const { return s_.kv_heads * s_.size; }
  int64_t value_stride() const { return s_.kv_heads * s_.value_size; }
  int64_t kv_head() const { return head_ / (s_.heads / s_.kv_heads); }

  // to [size, kBlockQueries] = transposed from [count, size]; lanes beyond the queries are zero.
  void transpose_queries(T* to, const T* from, int64_t stride, int64_t size) const {
    for (int64_t a = 0; a < lanes_; a += kWidth) {
      transpose_rows(to + a, kBlockQueries, from + a * stride, stride, std::min(kWidth, count_ - a), size);
    }
  }

  // Fills the tile with exp(logit - top of the group) [count, kBlockQueries]; rows of landmarks keep their logits.
  T* exponentials(const KeyTile& tile) {
    block_product(logits_, kBlockQueries, Operand<T>{keys(tile), key_stride()}, by_feature_, kBlockQueries, tile.count,
                  lanes_, s_.size, false);
    for (size_t g = tile.first; g < tile.last; ++g) take_group(tile, g);
    return logits_;
  }
  // Values of a group, by lane, after exponentials(). With `whole`, the log of the sum over all gates, the group has
  // the share exp(gate - whole) * mass, and a key of it has its exponential times exp(gate - whole) * scale.
  const T* gates(const KeyTile& tile, size_t group) const { return gates_ + line_of(tile, group); }
  const T* masses(const KeyTile& tile, size_t group) const { return masses_ + line_of(tile, group); }
  const T* scales(const KeyTile& tile, size_t group) const { return scales_ + line_of(tile, group); }
  // Returns 1 / sum of the exponentials if the share is that of a landmark; otherwise -1.
  const T* inverses(const KeyTile& tile, size_t group) const { return inverses_ + line_of(tile, group); }
  T* row_of(const KeyTile& tile, T* rows, int64_t key) const { return rows + (key - tile.begin) * kBlockQueries; }

 private:
  static constexpr T kNone = -std::numeric_limits<T>::infinity();

  const T* line(const Tensor& tensor, const KeyTile& tile, int64_t size) const {
    return tensor.data<T>() + ((row_ * s_.keys + tile.begin) * s_.kv_heads + kv_head()) * size;
  }
  int64_t line_of(const KeyTile& tile, size_t group) const {
    return static_cast<int64_t>(group - tile.first) * kBlockQueries;
  }

  // Return whether the group is the block of the query in lane a, or an earlier block that it sees.
  bool is_own(size_t group, int64_t a) const {
    return in_.own_block && groups_[group].number == own_[a] && earliest_[a] <= own_[a];
  }
  bool is_earlier(size_t group, int64_t a) const {
    const KeyGroup& g = groups_[group];
    if (g.number >= own_[a] || g.number < earliest_[a]) return false;
    return !in_.landmark.defined() || !g.closed;
  }

  // Makes tiles, without groups that no query sees.
  void make_tiles() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      bool seen = false;
      for (int64_t a = 0; a < count_ && !seen; ++a) seen = is_own(g, a) || is_earlier(g, a);
      if (!seen) continue;
      const KeyGroup& group = groups_[g];
      const int64_t size = group.end - group.begin;
      const bool goes_on = !tiles_.empty() && tiles_.back().last == g &&
                           group.begin == tiles_.back().begin + tiles_.back().count &&
                           tiles_.back().count + size <= kBlockKeys;
      if (!goes_on) tiles_.push_back({g, g, group.begin, 0});
      tiles_.back().last = g + 1;
      tiles_.back().count += size;
    }
  }

  void take_group(const KeyTile& tile, size_t g) {
    const KeyGroup& group = groups_[g];
    const int64_t regular = group.regular();
    // Per lane: the number of regular keys that it sees, and 1 if its share is that of the landmark.
    std::array<T, kBlockQueries> seen;
    std::array<T, kBlockQueries> gated;
    std::array<T, kBlockQueries> kept;
    bool all = true;
    for (int64_t a = 0; a < lanes_; ++a) {
      const bool own = is_own(g, a);
      const bool earlier = !own && is_earlier(g, a);
      const int64_t place = s_.before() + first_ + a;
      seen[a] = static_cast<T>(own ? std::min(place + 1 - group.begin, regular) : (earlier ? regular : 0));
      gated[a] = earlier && in_.landmark.defined() && in_.grouped ? T{1} : T{0};
      kept[a] = gated[a] != T{0} && in_.dropout > 0 ? kept_share(group, a) : T{1};
      all = all && seen[a] == static_cast<T>(regular);
    }
    T* const rows = row_of(tile, logits_, group.begin);
    const T* const landmark = group.landmark ? rows + regular * kBlockQueries : nullptr;
    const int64_t at = line_of(tile, g);
    const Vector<T> none = kNone - Vector<T>{};
    for (int64_t a = 0; a < lanes_; a += kWidth) {
      Vector<T> top = std::numeric_limits<T>::lowest() - Vector<T>{};
      if (all) {
        for (int64_t j = 0; j < regular; ++j) top = larger<T>(top, load_vector(rows + j * kBlockQueries + a));
      } else {
        const Vector<T> limit = load_vector(seen.data() + a);
        for (int64_t j = 0; j < regular; ++j) {
          T* const x = rows + j * kBlockQueries + a;
          const Vector<T> visible = static_cast<T>(j) - Vector<T>{} < limit ? load_vector(x) : none;
          store_vector(x, visible);
          top = larger<T>(top, visible);
        }
      }
      Vector<T> sum{};
      for (int64_t j = 0; j < regular; ++j) {
        T* const x = rows + j * kBlockQueries + a;
        const Vector<T> value = exponential<T>(load_vector(x) - top);
        store_vector(x, value);
        sum += value;
      }
      const Vector<T> one = 1 - Vector<T>{};
      const auto is_empty = sum == Vector<T>{};
      Vector<T> gate = is_empty ? none : top;
      Vector<T> mass = sum;
      Vector<T> scale = one;
      Vector<T> inverse = -one;
      if (landmark != nullptr) {
        const auto by_landmark = load_vector(gated.data() + a) != Vector<T>{};
        const Vector<T> divided = is_empty ? Vector<T>{} : one / sum;
        gate = by_landmark ? (is_empty && !in_.empty_blocks_count ? none : load_vector(landmark + a)) : gate;
        mass = by_landmark ? one : sum;
        scale = by_landmark ? divided * load_vector(kept.data() + a) : one;
        inverse = by_landmark ? divided : -one;
      }
      store_vector(gates_ + at + a, gate);
      store_vector(masses_ + at + a, mass);
      store_vector(scales_ + at + a, scale);
      store_vector(inverses_ + at + a, inverse);
    }
  }

  // Returns the factor that dropout applies to the share of a group.
  T kept_share(const KeyGroup& group, int64_t a) const {
    const auto element = static_cast<uint64_t>(head_ * s_.keys + group.number);
    const auto bits = philox(in_.key, in_.scope, static_cast<uint32_t>(in_.first_row + row_),
                             static_cast<uint32_t>(first_ + a), static_cast<uint32_t>(element / 4));
    const auto threshold = static_cast<uint64_t>(in_.dropout * 4294967296.0);
    return bits[element % 4] >= threshold ? static_cast<T>(1.0 / (1.0 - in_.dropout)) : T{0};
  }

  const ops::BlockAttentionInputs& in_;
  const BlockSizes& s_;
  const std::vector<KeyGroup>& groups_;
  int64_t row_, head_, first_, count_, lanes_;
  T* content_;
  T* by_feature_;  // [D, kBlockQueries]
  std::array<int32_t, kBlockQueries> own_, earliest_;
  std::vector<KeyTile> tiles_;
  T *logits_, *gates_, *masses_, *scales_, *inverses_;
};

}  // namespace quire::cpu
