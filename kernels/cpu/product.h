// Single-threaded matrix products, shared by gemm and attention. A micro kernel keeps a tile of c in registers. However
// the caller cuts the product, every element of c is the same sum over k in the same order, in parts that depend on k
// alone, so tiles, threads and packing never change a bit.
#pragma once

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/cpu/common.h"

namespace quire::cpu {

// Register tile: kTileRows rows of kTileVectors vectors, with registers left for one row of b and one value of a.
#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
inline constexpr int kTileRows = 14;
#else
inline constexpr int kVectorBytes = 32;
inline constexpr int kTileRows = 6;
#endif
inline constexpr int kTileVectors = 2;
// Length of the sums in one pass over a tile: long enough that c is seldom read back, and short enough that a packed
// block of a stays in the second-level cache.
inline constexpr int64_t kDepth = 768;
// Length in one pass of sums longer than 2 kDepth: shorter, so that only a little of b is packed before the first
// multiplication.
inline constexpr int64_t kDepthOfLongSums = 256;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;
template <typename T>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <typename T>
inline constexpr int kPanel = kTileVectors* kLanes<T>;

template <typename T>
Vector<T> load_vector(const T* from) {
  Vector<T> value;
  std::memcpy(&value, from, sizeof(value));  // from any address
  return value;
}
template <typename T>
void store_vector(T* to, Vector<T> value) {
  std::memcpy(to, &value, sizeof(value));
}

// Returns exp(x) of each lane; NaN stays NaN.
template <typename T>
Vector<T> exponential(Vector<T> x) {
  using Lane = Eigen::Array<T, kLanes<T>, 1>;
  using Bits = decltype(x < x);
  Lane values;
  store_vector(values.data(), x);
  values = values.exp();
  const Bits kept = (Bits)load_vector(values.data()) & (x >= kSmallestExponent<T> - Vector<T>{});
  return x != x ? x : (Vector<T>)kept;
}

// to = exp(x), which may be `to`. An element has the bits that exponential() gives, wherever it stands.
template <typename T>
void exponentials(T* to, const T* x, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) store_vector(to + i, exponential<T>(load_vector(x + i)));
  if (i == count) return;
  Vector<T> rest{};
  const auto bytes = static_cast<size_t>(count - i) * sizeof(T);
  std::memcpy(&rest, x + i, bytes);
  rest = exponential<T>(rest);
  std::memcpy(to + i, &rest, bytes);
}

template <typename T>
Vector<T> larger(Vector<T> a, Vector<T> b) {
  return a > b ? a : b;
}

// One operand of a product, row-major with any outer stride.
template <typename T>
struct Operand {
  const T* data;
  int64_t stride;
  bool transposed = false;

  const T* at(int64_t row, int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
  Operand from(int64_t row, int64_t column) const { return {at(row, column), stride, transposed}; }
};

// c [rows, columns] (+)= a [rows, depth] b [depth, vectors]; only `columns` columns are written. The arguments are
// depth, a and its stride, b and its stride, c and its stride, columns, and whether to add to c.
template <typename T>
using TileProduct = void (*)(int64_t, const T*, int64_t, const T*, int64_t, T*, int64_t, int64_t, bool);

// Indexed by whether a is transposed, whether the tile has one vector, and rows - 1. They take seconds to compile and
// are compiled once, in tile_products.cpp.
template <typename T>
using TileProducts = std::array<std::array<std::array<TileProduct<T>, kTileRows>, 2>, 2>;
extern const TileProducts<float> kTileProductsF32;
extern const TileProducts<double> kTileProductsF64;

// Returns the tile product for a number of rows, 1..kTileRows, and of vectors.
template <typename T>
TileProduct<T> tile_product_for(int64_t rows, bool one_vector, bool transposed_a) {
  const auto row = static_cast<size_t>(rows - 1);
  if constexpr (std::is_same_v<T, float>) {
    return kTileProductsF32[transposed_a ? 1 : 0][one_vector ? 1 : 0][row];
  } else {
    static_assert(std::is_same_v<T, double>);
    return kTileProductsF64[transposed_a ? 1 : 0][one_vector ? 1 : 0][row];
  }
}

// Calls body(first, count) for m rows in tiles of nearly equal height, none above kTileRows.
template <typename Body>
void for_row_tiles(int64_t m, Body&& body) {
  const int64_t tiles = ceil_div(m, int64_t{kTileRows});
  for (int64_t tile = 0, first = 0; tile < tiles; ++tile) {
    const int64_t end = m * (tile + 1) / tiles;
    body(first, end - first);
    first = end;
  }
}

// Transposes a square of vectors in registers: in each pass blocks of S x S are exchanged.
template <typename T, int S, bool Second, size_t... J>
Vector<T> exchange(Vector<T> a, Vector<T> b, std::index_sequence<J...>) {
  constexpr size_t kWidth = kLanes<T>;
  if constexpr (Second) {
    return __builtin_shufflevector(a, b, ((J & S) != 0 ? kWidth + J : (J ^ S))...);
  } else {
    return __builtin_shufflevector(a, b, ((J & S) != 0 ? kWidth + (J ^ S) : J)...);
  }
}

template <typename T, int S>
__attribute__((always_inline)) inline void exchange_blocks(Vector<T> (&x)[kLanes<T>]) {
  using Lanes = std::make_index_sequence<kLanes<T>>;
#pragma GCC unroll 16
  for (int i = 0; i < kLanes<T>; ++i) {
    if ((i & S) != 0) continue;
    const Vector<T> a = x[i];
    const Vector<T> b = x[i + S];
    x[i] = exchange<T, S, false>(a, b, Lanes{});
    x[i + S] = exchange<T, S, true>(a, b, Lanes{});
  }
}

template <typename T>
__attribute__((always_inline)) inline void transpose_square(Vector<T> (&x)[kLanes<T>]) {
  exchange_blocks<T, 1>(x);
  exchange_blocks<T, 2>(x);
  if constexpr (kLanes < T >> 4) exchange_blocks<T, 4>(x);
  if constexpr (kLanes < T >> 8) exchange_blocks<T, 8>(x);
}

// to [k, to_stride] = transposed from [rows, k], rows at most one vector: whole vectors are written, zero from `rows`
// on.
template <typename T>
__attribute__((noinline)) void transpose_rows(T* to, int64_t to_stride, const T* from, int64_t from_stride,
                                              int64_t rows, int64_t k) {
  constexpr int kWidth = kLanes<T>;
  int64_t i = 0;
  for (; i + kWidth <= k; i += kWidth) {
    Vector<T> x[kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) x[r] = r < rows ? load_vector(from + r * from_stride + i) : Vector<T>{};
    transpose_square<T>(x);
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) store_vector(to + (i + r) * to_stride, x[r]);
  }
  for (; i < k; ++i) {
    for (int r = 0; r < kWidth; ++r) to[i * to_stride + r] = r < rows ? from[r * from_stride + i] : T{0};
  }
}

// c [m, n] (+)= a [m, k] b [k, n] with b not packed: for blocks that stay in the cache anyway.
template <typename T>
void block_product(T* c, int64_t c_stride, const Operand<T>& a, const T* b, int64_t b_stride, int64_t m, int64_t n,
                   int64_t k, bool accumulate) {
  constexpr int64_t kWidth = kLanes<T>;
  for (int64_t j = 0; j < n;) {
    // The last columns of b may not be read beyond its end, so they are copied with padding.
    const int64_t columns = std::min<int64_t>(kPanel<T>, n - j);
    const bool one = columns <= kWidth;
    const int64_t width = one ? kWidth : kPanel<T>;
    const T* panel = b + j;
    int64_t panel_stride = b_stride;
    if (columns != width) {
      T* const copy = scratch<T>(15, k * width);
      for (int64_t i = 0; i < k; ++i) {
        std::copy_n(b + i * b_stride + j, columns, copy + i * width);
        std::fill_n(copy + i * width + columns, width - columns, T{0});
      }
      panel = copy;
      panel_stride = width;
    }
    for_row_tiles(m, [&](int64_t first, int64_t rows) {
      tile_product_for<T>(rows, one, a.transposed)(k, a.at(first, 0), a.stride, panel, panel_stride,
                                                   c + first * c_stride + j, c_stride, columns, accumulate);
    });
    j += columns;
  }
}

// Prefetches a block of memory in small steps while other work continues.
class Prefetch {
 public:
  Prefetch(const void* data, int64_t rows, int64_t row_bytes, int64_t stride_bytes, int64_t steps)
      : data_(static_cast<const char*>(data)),
        lines_(ceil_div(row_bytes, kLine)),
        stride_(stride_bytes),
        total_(rows * lines_),
        per_step_(ceil_div(total_, std::max<int64_t>(steps, 1))) {}

  void step() {
    for (const int64_t end = std::min(total_, next_ + per_step_); next_ < end; ++next_) {
      __builtin_prefetch(data_ + next_ / lines_ * stride_ + next_ % lines_ * kLine, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* data_;
  int64_t lines_, stride_, total_, per_step_;
  int64_t next_ = 0;
};

// Prefetches a part [rows, columns] of an operand; does nothing when it is empty.
template <typename T>
Prefetch prefetch_of(const Operand<T>& x, int64_t row, int64_t column, int64_t rows, int64_t columns, int64_t steps) {
  constexpr auto item = static_cast<int64_t>(sizeof(T));
  if (rows <= 0 || columns <= 0) return Prefetch(nullptr, 0, 0, 0, steps);
  if (x.transposed) std::swap(rows, columns);
  return Prefetch(x.at(row, column), rows, columns * item, x.stride * item, steps);
}

// The gap between panels of b: without it, panels at multiples of a page would map to the same sets of the first-level
// cache while a row of b is distributed over them.
template <typename T>
inline constexpr int64_t kPanelGap = kLanes<T>;

// Packs b [depth, n] from row `begin` into panels of kPanel columns (the last one in whole vectors), each [depth,
// width].
template <typename T>
void pack_panels(T* to, const Operand<T>& b, int64_t begin, int64_t depth, int64_t n) {
  constexpr int64_t kWidth = kLanes<T>;
  if (b.transposed) {
    for (int64_t j = 0; j < n; j += kPanel<T>) {
      const int64_t columns = std::min<int64_t>(kPanel<T>, n - j);
      const int64_t width = columns <= kWidth ? kWidth : kPanel<T>;
      for (int64_t x = 0; x < width; x += kWidth) {
        transpose_rows(to + x, width, b.at(begin, j + x), b.stride, std::min(kWidth, columns - x), depth);
      }
      to += width * depth + kPanelGap<T>;
    }
    return;
  }
  // The loop follows the rows of b, as they lie in memory.
  for (int64_t i = 0; i < depth; ++i) {
    const T* from = b.at(begin + i, 0);
    T* panel = to;
    int64_t j = 0;
    for (; j + kPanel<T> <= n; j += kPanel<T>) {
      for (int v = 0; v < kTileVectors; ++v) {
        store_vector(panel + i * kPanel<T> + v * kWidth, load_vector(from + j + v * kWidth));
      }
      panel += kPanel<T> * depth + kPanelGap<T>;
    }
    if (j < n) {
      const int64_t width = n - j <= kWidth ? kWidth : kPanel<T>;
      std::copy_n(from + j, n - j, panel + i * width);
      std::fill_n(panel + i * width + n - j, width - (n - j), T{0});
    }
  }
}

// Packs rows [first, last) of a, not transposed, into tiles, each [depth, rows of the tile]. Vectors are written whole,
// so a tile overruns into the next one, which is written after it; `to` needs one vector more.
template <typename T>
void pack_row_tiles(T* to, const Operand<T>& a, int64_t first, int64_t last, int64_t begin, int64_t depth) {
  for_row_tiles(last - first, [&](int64_t row, int64_t rows) {
    // Runs from the last vector to the first, because each overruns into the next depth.
    for (int64_t x = (rows - 1) / kLanes<T> * kLanes<T>; x >= 0; x -= kLanes<T>) {
      transpose_rows(to + row * depth + x, rows, a.at(first + row + x, begin), a.stride,
                     std::min<int64_t>(kLanes<T>, rows - x), depth);
    }
  });
}

// c [m, n] (+)= a b with b packed into panels, kDepth rows at a time. a is packed too when many panels read it.
template <typename T>
void packed_product(T* c, int64_t c_stride, const Operand<T>& a, const Operand<T>& b, int64_t m, int64_t n, int64_t k,
                    bool accumulate) {
  constexpr int64_t kWidth = kLanes<T>;
  constexpr int64_t kManyColumns = 256;
  // rows of a that stay in the second-level cache while all panels read them
  constexpr int64_t kBlockRows = 8 * kTileRows;
  const bool pack_a = !a.transposed && n > kManyColumns;
  const int64_t deepest = std::min(k, k > 2 * kDepth ? kDepthOfLongSums : kDepth);
  T* const packed_b = scratch<T>(13, (n + kPanel<T>)*deepest + ceil_div(n, int64_t{kPanel<T>}) * kPanelGap<T>);
  T* const packed_a = pack_a ? scratch<T>(14, kBlockRows * deepest + kWidth) : nullptr;
  const int64_t blocks = ceil_div(m, kBlockRows);
  const auto first_row = [&](int64_t block) { return m * block / blocks; };
  const int64_t panels = ceil_div(n, int64_t{kPanel<T>});
  prefetch_of(a, 0, 0, first_row(1), deepest, 1).step();
  for (int64_t begin = 0; begin < k; begin += deepest) {
    const int64_t depth = std::min(deepest, k - begin);
    const int64_t depth_after = std::min(deepest, k - begin - depth);
    pack_panels(packed_b, b, begin, depth, n);
    Prefetch next_b = prefetch_of(b, begin + depth, 0, depth_after, n,
                                  panels * blocks * ceil_div(ceil_div(m, blocks), int64_t{kTileRows}));
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t first = first_row(block);
      const int64_t last = first_row(block + 1);
      if (pack_a) pack_row_tiles(packed_a, a, first, last, begin, depth);
      const int64_t calls = panels * ceil_div(last - first, int64_t{kTileRows});
      Prefetch next = block + 1 < blocks ? prefetch_of(a, last, begin, first_row(block + 2) - last, depth, calls)
                                         : prefetch_of(a, 0, begin + depth, first_row(1), depth_after, calls);
      const T* panel = packed_b;
      for (int64_t j = 0; j < n; j += kPanel<T>) {
        const int64_t columns = std::min<int64_t>(kPanel<T>, n - j);
        const bool one = columns <= kWidth;
        const int64_t width = one ? kWidth : kPanel<T>;
        for_row_tiles(last - first, [&](int64_t row, int64_t rows) {
          next.step();
          next_b.step();
          const T* from = pack_a ? packed_a + row * depth : a.at(first + row, begin);
          tile_product_for<T>(rows, one, pack_a || a.transposed)(depth, from, pack_a ? rows : a.stride, panel, width,
                                                                 c + (first + row) * c_stride + j, c_stride, columns,
                                                                 accumulate || begin > 0);
        });
        panel += width * depth + kPanelGap<T>;
      }
    }
  }
}

}  // namespace quire::cpu
