// The shared part of the forward and backward kernels of attention with given weights: which queries read which list,
// tiles of them, and the chunks they read.
#pragma once

#include <vector>

#include "kernels/cpu/product.h"
#include "kernels/listed_sizes.h"

namespace quire::cpu {

// The queries of a tile, one per vector lane. The tile and a chunk's logits fit the second-level cache.
inline constexpr int64_t kListQueries = 96;

// Queries [first, first + count) of a row that read one list; list -1: none.
struct QueryRun {
  int64_t row, list, first, count;
};

// Returns the runs of all rows, in order. Checks the values of lists and chunks.
inline std::vector<QueryRun> query_runs(const ops::ListedAttentionInputs& in, const ListedSizes& s) {
  const int32_t* const chosen = in.blocks.data<int32_t>();
  for (int64_t i = 0; i < in.blocks.numel(); ++i) {
    QUIRE_CHECK(chosen[i] >= -1 && chosen[i] < s.blocks, "listed_attention: chunk {} of {}", chosen[i], s.blocks);
  }
  std::vector<QueryRun> runs;
  for (int64_t row = 0; row < s.rows; ++row) {
    std::vector<bool> seen(static_cast<size_t>(s.lists), false);
    const int32_t* const list = in.list.data<int32_t>() + row * s.queries;
    for (int64_t t = 0; t < s.queries; ++t) {
      if (t > 0 && list[t] == list[t - 1]) {
        ++runs.back().count;
        continue;
      }
      QUIRE_CHECK(list[t] >= -1 && list[t] < s.lists, "listed_attention: list {} of {} in row {}", list[t], s.lists,
                  row);
      if (list[t] >= 0) {
        const auto at = static_cast<size_t>(list[t]);
        QUIRE_CHECK(!seen[at], "listed_attention: list {} of row {} is read by query {} and before a gap", list[t], row,
                    t);
        seen[at] = true;
      }
      runs.push_back({row, list[t], t, 1});
    }
  }
  return runs;
}

// Calls body(tile) for tiles of a run, of nearly equal size.
template <typename T, typename Body>
void for_query_tiles(const QueryRun& run, Body&& body) {
  const int64_t tiles = ceil_div(run.count, kListQueries);
  const int64_t size = ceil_div(ceil_div(run.count, tiles), int64_t{kLanes<T>}) * kLanes<T>;
  for (int64_t first = 0; first < run.count; first += size) {
    body(QueryRun{run.row, run.list, run.first + first, std::min(size, run.count - first)});
  }
}

// Returns the number of queries of a tile, rounded up to whole vectors.
template <typename T>
int64_t lanes_of(const QueryRun& tile) {
  return ceil_div(tile.count, int64_t{kLanes<T>}) * kLanes<T>;
}

// Returns the number of lanes that are computed as vectors. The remaining queries are so few that their vector would be
// mostly empty, as when the landmark makes a chunk one longer than a power of two: they are computed one by one.
template <typename T>
int64_t whole_lanes(const QueryRun& tile) {
  constexpr int64_t kFew = kLanes<T> / 8;
  return tile.count % kLanes<T> <= kFew ? tile.count / kLanes<T> * kLanes<T> : lanes_of<T>(tile);
}

// Returns a column of a matrix [.., lanes].
template <typename T>
Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>, Eigen::Unaligned, Eigen::InnerStride<>> column_of(T* first,
                                                                                                 int64_t lanes,
                                                                                                 int64_t count) {
  return {first, count, Eigen::InnerStride<>(lanes)};
}

// Returns the chunk that the n-th entry of the list names; -1: none.
inline int64_t chunk_of(const ops::ListedAttentionInputs& in, const ListedSizes& s, const QueryRun& tile, int64_t n) {
  return in.blocks.data<int32_t>()[(tile.row * s.lists + tile.list) * s.chosen + n];
}

// Returns the index into lse of the first query of a tile and entry 0; the next query is K further.
inline int64_t lse_of(const ListedSizes& s, const QueryRun& tile, int64_t head) {
  return ((tile.row * s.heads + head) * s.queries + tile.first) * s.chosen;
}

// Returns the index into q, dq, out or dout of the first query of a tile; the next query is H * size further.
inline int64_t line_of(const ListedSizes& s, const QueryRun& tile, int64_t head, int64_t size) {
  return ((tile.row * s.queries + tile.first) * s.heads + head) * size;
}

// Returns the index into keys or values of the first key of a chunk; the next key is Hk * size further.
inline int64_t line_of(const ListedSizes& s, int64_t chunk, int64_t kv_head, int64_t size) {
  return (chunk * s.length * s.kv_heads + kv_head) * size;
}

// Returns keys or values of a chunk in the type in which they are computed: the stored ones, or a copy in the thread's
// scratch. S: the type in which they are stored.
template <typename T, typename S>
Operand<T> chunk_lines(const Tensor& stored, const ListedSizes& s, int64_t chunk, int64_t kv_head, int64_t size,
                       int slot) {
  const S* const from = stored.data<S>() + line_of(s, chunk, kv_head, size);
  const int64_t stride = s.kv_heads * size;
  if constexpr (std::is_same_v<S, T>) {
    return {from, stride};
  } else {
    T* const to = scratch<T>(slot, s.length * size);
    for (int64_t j = 0; j < s.length; ++j) {
      for (int64_t f = 0; f < size; ++f) to[j * size + f] = static_cast<T>(wide(from[j * stride + f]));
    }
    return {to, size};
  }
}

// to [size, lanes] = transposed from [count, size] times a factor; lanes beyond the queries are zero.
template <typename T>
void turn_queries(T* to, int64_t lanes, const T* from, int64_t stride, int64_t count, int64_t size, T factor) {
  constexpr int64_t kWidth = kLanes<T>;
  for (int64_t a = 0; a < lanes; a += kWidth) {
    transpose_rows(to + a, lanes, from + a * stride, stride, std::min(kWidth, count - a), size);
  }
  if (factor != T{1}) ArrayView<T>(to, lanes * size) *= factor;
}

// The vectors of a chunk, transposed to features, for queries that are computed one by one.
template <typename T>
class LinesByFeature {
 public:
  LinesByFeature(const ListedSizes& s, int64_t size, int slot)
      : length_(s.length),
        lanes_(ceil_div(s.length, int64_t{kLanes<T>}) * kLanes<T>),
        size_(size),
        values_(scratch<T>(slot, size * lanes_)) {}

  void load(const Operand<T>& lines) { turn_queries(values_, lanes_, lines.data, lines.stride, length_, size_, T{1}); }
  // Writes their products with x [size], with the same sums as in a tile. `to` must have room for whole vectors.
  void multiply(T* to, const T* x) const {
    block_product(to, lanes_, Operand<T>{x, size_}, values_, lanes_, 1, lanes_, size_, false);
  }
  int64_t lanes() const { return lanes_; }

 private:
  int64_t length_, lanes_, size_;
  T* values_;
};

// to [count, size] = lines that lie `stride` apart.
template <typename T>
void pack_lines(T* to, const T* from, int64_t stride, int64_t count, int64_t size) {
  for (int64_t a = 0; a < count; ++a) std::copy_n(from + a * stride, size, to + a * size);
}

}  // namespace quire::cpu
