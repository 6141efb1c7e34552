// The shared part of the forward and backward kernels of attention to listed blocks: who reads which block, in the
// order of blocks, and tiles of those that read one.
#pragma once

#include <bit>
#include <numeric>
#include <vector>

#include "kernels/cpu/knn_memory.h"
#include "kernels/cpu/rotate.h"
#include "kernels/listed_sizes.h"

namespace quire::cpu {

// The queries of a tile, one per vector lane, unless more heads read a list together. The tile and a block's logits fit
// the second-level cache.
inline constexpr int64_t kListedQueries = 96;

// The heads that read a list together, from the one with index `line` in [R, T, H] on, read a block, entry `entry` of
// all lists.
struct Read {
  int32_t block, line, entry;
};

// The queries of a row [first, last) and the key head that a task takes.
struct ListedPart {
  int64_t row, kv_head, first, last;

  // Calls body(line) for each line [R, T, H] of the part.
  template <typename Body>
  void for_each_line(const ListedSizes& s, const Body& body) const {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t h = 0; h < s.group(); ++h) body((row * s.queries + t) * s.heads + kv_head * s.group() + h);
    }
  }
};

// Returns the number of a listed block, with those of the pass behind the stored ones.
inline int32_t number_of_block(const ops::ListedAttentionInputs& in, const ListedSizes& s, int32_t listed,
                               int64_t row) {
  const int64_t own = -2 - int64_t{listed};
  QUIRE_CHECK(listed >= 0 ? listed < s.blocks : own < s.own_blocks, "listed_attention: {} {} of {}",
              listed >= 0 ? "block" : "own block", listed >= 0 ? listed : own, listed >= 0 ? s.blocks : s.own_blocks);
  if (listed >= 0) return listed;
  const int32_t* const span = in.own_blocks.data<int32_t>() + 2 * own;
  const int64_t first = span[0] - row * s.own_keys;
  QUIRE_CHECK(first >= 0 && first + span[1] <= s.own_keys && span[1] > 0 && span[1] <= s.length,
              "listed_attention: own block {} has {} keys from key {} of row {} on", own, span[1], first, row);
  return static_cast<int32_t>(s.blocks + own);
}

// Appends the reads of a part. Checks the values of lists.
inline void add_reads(std::vector<Read>& to, const ops::ListedAttentionInputs& in, const ListedSizes& s,
                      const ListedPart& part) {
  const int64_t row = part.row, kv_head = part.kv_head;
  const int32_t* const blocks = in.blocks.data<int32_t>();
  for (int64_t t = part.first; t < part.last; ++t) {
    const int64_t list = in.list.defined() ? in.list.data<int32_t>()[row * s.queries + t] : t;
    QUIRE_CHECK(list < s.lists, "listed_attention: list {} of {} in row {}", list, s.lists, row);
    for (int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group() && list >= 0; head += s.together()) {
      const int64_t begin = ((row * s.lists + list) * s.list_heads + head * s.list_heads / s.heads) * s.chosen;
      for (int64_t entry = begin; entry < begin + s.chosen; ++entry) {
        if (blocks[entry] == -1) continue;
        const int32_t block = number_of_block(in, s, blocks[entry], row);
        const int64_t back = in.table.defined() ? in.rotation.data<int32_t>()[entry] : 0;
        QUIRE_CHECK(!in.table.defined() || (back >= 0 && back < in.table.dim(0)),
                    "listed_attention: {} blocks back in a table of {}", back, in.table.dim(0));
        to.push_back(
            {block, static_cast<int32_t>((row * s.queries + t) * s.heads + head), static_cast<int32_t>(entry)});
      }
    }
  }
}

// Sorts by block, and keeps the order of the reads of a block.
inline void sort_by_block(std::vector<Read>& reads) {
  std::vector<Read> sorted(reads.size());
  int32_t bits = 0;
  for (const Read& read : reads) bits |= read.block;
  for (int shift = 0; shift < 32 && bits >> shift > 0; shift += 8) {
    const auto digit = [&](const Read& read) { return static_cast<size_t>(read.block >> shift & 255); };
    std::array<size_t, 257> begin{};
    for (const Read& read : reads) ++begin[digit(read) + 1];
    for (size_t i = 1; i < 256; ++i) begin[i] += begin[i - 1];
    for (const Read& read : reads) sorted[begin[digit(read)]++] = read;
    reads.swap(sorted);
  }
}

// Divides numbers from 0 to 2^31 - 1 by a product (Granlund and Montgomery 1994): a division takes as long as several
// steps of a vector, and each line needs some.
struct Divisor {
  uint64_t number, shift, factor;

  explicit Divisor(int64_t by)
      : number(static_cast<uint64_t>(std::max<int64_t>(1, by))),
        shift(31 + static_cast<uint64_t>(std::bit_width(number - 1))),
        factor(((uint64_t{1} << shift) + number - 1) / number) {}
  // Returns quotient and remainder.
  std::pair<int64_t, int64_t> operator()(int64_t of) const {
    const uint64_t quotient = static_cast<uint64_t>(of) * factor >> shift;
    return {static_cast<int64_t>(quotient), of - static_cast<int64_t>(quotient * number)};
  }
};

// The reads of a task by one key head, sorted.
template <typename T>
struct ListedTask {
  static constexpr int64_t kWidth = kLanes<T>;

  const ops::ListedAttentionInputs& in;
  const ListedSizes& s;
  int64_t kv_head;
  std::vector<Read> reads;
  Divisor heads{s.heads}, row{s.queries}, list{s.chosen};

  // Returns first key and number of keys of a block of the pass.
  const int32_t* span_of(int32_t block) const { return in.own_blocks.data<int32_t>() + 2 * (block - s.blocks); }
  int64_t length(int32_t block) const { return block < s.blocks ? s.length : span_of(block)[1]; }
  int64_t max_lanes() const {
    return ceil_div(std::max(s.together(), kListedQueries / s.together() * s.together()), kWidth) * kWidth;
  }

  // Calls body(reads, count, lanes) for tiles of the reads of each block, of nearly equal size, but for the last one of
  // whole pairs of vectors.
  template <typename Body>
  void for_each_tile(const Body& body) const {
    const int64_t max_count = std::max<int64_t>(1, kListedQueries / s.together());
    const int64_t even = 2 * kWidth / std::gcd(2 * kWidth, s.together());  // reads that fill pairs of vectors
    for (size_t begin = 0, end = 0; begin < reads.size(); begin = end) {
      while (end < reads.size() && reads[end].block == reads[begin].block) ++end;
      const auto all = static_cast<int64_t>(end - begin);
      const int64_t size = std::min(max_count, ceil_div(ceil_div(all, ceil_div(all, max_count)), even) * even);
      for (int64_t first = 0; first < all; first += size) {
        const int64_t count = std::min(size, all - first);
        body(reads.data() + begin + first, count, ceil_div(count * s.together(), kWidth) * kWidth);
      }
    }
  }

  // A query and head of a tile: its lane, its indices in [R, T, H] and in [R, H, T], the entry of all lists, and its
  // number in its list.
  struct Line {
    int64_t lane, line, by_head, entry, n;
  };
  // Calls body(line) for each.
  template <typename Body>
  void for_each_line(const Read* of_tile, int64_t count, const Body& body) const {
    const int64_t together = s.together();
    for (int64_t e = 0, a = 0; e < count; ++e) {
      const Read& read = of_tile[e];
      const int64_t first = by_head(read.line), n = list(read.entry).second;
      for (int64_t h = 0; h < together; ++h, ++a) body(Line{a, read.line + h, first + h * s.queries, read.entry, n});
    }
  }

  // Returns the index in [R, H, T] of a line of [R, T, H].
  int64_t by_head(int64_t line) const {
    const auto [query, head] = heads(line);
    const auto [number, t] = row(query);
    return (number * s.heads + head) * s.queries + t;
  }
  int64_t weight_of(const Line& line) const {
    return in.weight.rank() == 3 ? line.entry : line.by_head * s.width + line.n;
  }

  // Returns the place of the first key of a block, of either kind, in tensors of a key head and vectors of `size`.
  int64_t place_of(int32_t block, int64_t size) const {
    const int64_t first = block < s.blocks ? block * s.stored_length : span_of(block)[0];
    return (first * s.kv_heads + kv_head) * size;
  }
  // Returns keys or values of a block in the type in which they are computed: the given ones, or a copy in the thread's
  // scratch.
  Operand<T> lines(const Tensor& stored, const Tensor& scale, const Tensor& own, int32_t block, int64_t size,
                   int slot) const {
    const int64_t stride = s.kv_heads * size, first = place_of(block, size);
    if (block >= s.blocks) return {own.data<T>() + first, stride};
    if (stored.dtype() == dtype_of<T>()) return {stored.data<T>() + first, stride};
    T* const to = scratch<T>(slot, s.length * size);
    dispatch_stored<T>("listed_attention", stored.dtype(), [&](auto type) {
      const auto* const from = stored.data<decltype(type)>() + first;
      const bfloat16* const scales = scale.defined() ? scale.data<bfloat16>() + place_of(block, 1) : nullptr;
      for (int64_t j = 0; j < s.length; ++j) {
        copy_stored(to + j * size, from + j * stride, size,
                    scales == nullptr ? T{1} : from_stored<T>(scales[j * s.kv_heads]));
      }
    });
    return {to, size};
  }
  Operand<T> keys(int32_t block, int slot) const {
    return lines(in.keys, in.key_scale, in.own_keys, block, s.size, slot);
  }
  Operand<T> values(int32_t block, int slot) const {
    return lines(in.values, in.value_scale, in.own_values, block, s.value_size, slot);
  }

  // Returns how many lines [R, T, H] lie between those of a tile, when these are equally far from each other; else 0.
  int64_t distance(const Read* of_tile, int64_t count) const {
    if (s.together() > 1 && s.together() != s.heads) return 0;
    const int64_t step = count > 1 ? of_tile[1].line - of_tile[0].line : 1;
    for (int64_t e = 2; e < count; ++e) {
      if (of_tile[e].line - of_tile[e - 1].line != step) return 0;
    }
    return s.together() == 1 ? step : count == 1 || step == s.heads ? 1 : 0;
  }
  // Adds the product of a transposed [depth, lanes] and b [depth, size] to the lines of a tile. more: memory for it.
  void add_product(T* x, const T* a, int64_t lanes, const Operand<T>& b, int64_t depth, const Read* of_tile,
                   int64_t count, int64_t size, T* more) const {
    const int64_t queries = count * s.together(), step = distance(of_tile, count);
    T* const to = step == 0 ? more : x + of_tile->line * size;
    block_product(to, step == 0 ? size : step * size, Operand<T>{a, lanes, true}, b.data, b.stride, queries, size,
                  depth, step != 0);
    if (step == 0) add(x, more, of_tile, count, size);
  }

  // to [count * together, size] of x [R, T, H, size].
  void pack(T* to, const T* x, const Read* of_tile, int64_t count, int64_t size) const {
    const int64_t all = s.together() * size;
    for (int64_t e = 0; e < count; ++e) std::copy_n(x + of_tile[e].line * size, all, to + e * all);
  }
  // Returns the lines of a tile of x where they are if they lie at equal distances, else packed in `to`.
  Operand<T> lines_of(T* to, const T* x, const Read* of_tile, int64_t count, int64_t size) const {
    if (const int64_t step = distance(of_tile, count); step != 0) return {x + of_tile->line * size, step * size};
    pack(to, x, of_tile, count, size);
    return {to, size};
  }
  // Rotates queries of a tile, packed as [count * together, D], for their blocks, or back.
  void rotate_queries(T* packed, const Read* of_tile, int64_t count, bool back) const {
    if (!in.table.defined()) return;
    const int64_t pairs = in.table.dim(2);
    for_each_line(of_tile, count, [&](const Line& line) {
      const int64_t blocks = in.rotation.data<int32_t>()[line.entry];
      if (blocks == 0) return;
      T* const q = packed + line.lane * s.size;
      rotate(q, q, in.table.data<T>() + blocks * 2 * pairs, pairs, s.size, back, in.interleaved);
    });
  }
  // Returns the queries of a tile, rotated for their blocks; packed: memory for them.
  Operand<T> queries(T* packed, const Read* of_tile, int64_t count) const {
    if (!in.table.defined()) return lines_of(packed, in.q.data<T>(), of_tile, count, s.size);
    pack(packed, in.q.data<T>(), of_tile, count, s.size);
    rotate_queries(packed, of_tile, count, false);
    return {packed, s.size};
  }
  // Asks for what pack() would read, so that it is there when results are added to it. Inlined, since g++ leaves out
  // calls of functions that only ask for memory.
  __attribute__((always_inline)) void prefetch(T* x, const Read* of_tile, int64_t count, int64_t size) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int64_t e = 0; e < count; ++e) {
      T* const line = x + of_tile[e].line * size;
      for (int64_t f = 0; f < s.together() * size; f += kLine) __builtin_prefetch(line + f, 1, 2);
    }
  }
  // Adds what pack() would read.
  void add(T* x, const T* from, const Read* of_tile, int64_t count, int64_t size) const {
    const int64_t all = s.together() * size;
    for (int64_t e = 0; e < count; ++e) {
      ArrayView<T>(x + of_tile[e].line * size, all) += ConstArrayView<T>(from + e * all, all);
    }
  }
  // to [size, lanes] = transposed from [count, size] times a factor; lanes beyond the queries are zero.
  static void turn(T* to, int64_t lanes, const Operand<T>& from, int64_t count, int64_t size, T factor) {
    for (int64_t a = 0; a < lanes; a += kWidth) {
      transpose_rows(to + a, lanes, from.at(a, 0), from.stride, std::min(kWidth, count - a), size);
    }
    if (factor != T{1}) ArrayView<T>(to, lanes * size) *= factor;
  }
};

}  // namespace quire::cpu
