#include "kernels/gemm.h"

#include <limits>

#include "kernels/cpu/product.h"

namespace quire::cpu {

namespace {

// Each tile of c is one single-threaded product over the whole of K. How c is cut changes no bit, so it may depend on
// the number of threads.
struct Tiling {
  int64_t rows;
  int64_t columns;
};

// The cut with the least work for the thread that has most: whole rounds of tiles, each its area plus the packing of
// its two sides. Tiles are at most 512 a side, what a core keeps in its second-level cache, and columns come in panels.
Tiling tiling(int64_t m, int64_t n) {
  constexpr int64_t kMost = 512;
  constexpr int64_t kLeast = 64;
  constexpr int64_t kPanelColumns = 32;
  constexpr int64_t kPackingShare = 8;  // packing a column costs as much as this many products a row
  const int64_t threads = ThreadPool::current().threads();
  Tiling best{};
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t before = 0;
  for (int64_t row_parts = ceil_div(m, kMost); row_parts <= ceil_div(m, kMost) + threads; ++row_parts) {
    const int64_t rows = ceil_div(m, row_parts);
    if (before != 0 && rows < kLeast) break;
    before = rows;
    int64_t columns = 0;
    for (int64_t parts = ceil_div(n, kMost); parts <= ceil_div(n, kMost) + threads; ++parts) {
      const int64_t wanted = ceil_div(ceil_div(n, parts), kPanelColumns) * kPanelColumns;
      if (columns != 0 && (wanted < kLeast || wanted == columns)) continue;
      columns = wanted;
      const int64_t rounds = ceil_div(ceil_div(m, rows) * ceil_div(n, columns), threads);
      const int64_t cost = rounds * (rows * columns + kPackingShare * (rows + columns));
      if (cost < least) {
        least = cost;
        best = {rows, columns};
      }
    }
  }
  return best;
}

template <typename T>
void run(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const int64_t m = c.dim(0);
  const int64_t n = c.dim(1);
  const int64_t k = options.transpose_a ? a.dim(0) : a.dim(1);
  QUIRE_CHECK((options.transpose_a ? a.dim(1) : a.dim(0)) == m && (options.transpose_b ? b.dim(0) : b.dim(1)) == n &&
                  (options.transpose_b ? b.dim(1) : b.dim(0)) == k,
              "gemm: {} from {}{} and {}{}", c.shape().to_string(), a.shape().to_string(),
              options.transpose_a ? " transposed" : "", b.shape().to_string(),
              options.transpose_b ? " transposed" : "");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (!options.accumulate) {
      for (int64_t i = 0; i < m; ++i) std::fill_n(c.data<T>() + i * c.stride(0), n, T{0});
    }
    return;
  }
  const Operand<T> left{a.data<T>(), a.stride(0), options.transpose_a};
  const Operand<T> right{b.data<T>(), b.stride(0), options.transpose_b};
  const Tiling tile = tiling(m, n);
  const int64_t across = ceil_div(n, tile.columns);
  parallel_for(ceil_div(m, tile.rows) * across, [&](int64_t index) {
    const int64_t i = index / across * tile.rows;
    const int64_t j = index % across * tile.columns;
    packed_product(c.data<T>() + i * c.stride(0) + j, c.stride(0), left.from(i, 0), right.from(0, j),
                   std::min(tile.rows, m - i), std::min(tile.columns, n - j), k, options.accumulate);
  });
}

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  QUIRE_CHECK(a.rank() == 2 && b.rank() == 2 && c.rank() == 2, "gemm: ranks {}, {}, {}", c.rank(), a.rank(), b.rank());
  QUIRE_CHECK(a.stride(1) == 1 && b.stride(1) == 1 && c.stride(1) == 1, "gemm: inner strides must be 1");
  dispatch("gemm", c.dtype(), [&](auto type) { run<decltype(type)>(c, a, b, options); });
}

}  // namespace

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cpu, gemm);
}

}  // namespace quire::cpu
