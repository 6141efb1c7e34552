#include "kernels/gemm.h"

#include "kernels/cpu/product.h"

namespace quire::cpu {

namespace {

// Columns of a tile are a multiple of the widest panel.
constexpr int64_t kColumnStep = 32;

// Each tile of c is one single-threaded product over the whole of K. Tiles shrink until there are enough for a handful
// of threads; below 64 a side packing would cost more than it spreads.
struct Tiling {
  int64_t rows;
  int64_t columns;
};

Tiling tiling(int64_t m, int64_t n) {
  Tiling tile{std::min<int64_t>(m, 512), std::min<int64_t>(n, 1024)};
  while (ceil_div(m, tile.rows) * ceil_div(n, tile.columns) < 8) {
    const bool by_rows = tile.rows >= 128 && (tile.rows >= tile.columns || tile.columns < 128);
    if (by_rows) {
      tile.rows = ceil_div(tile.rows, 2);
    } else if (tile.columns >= 128) {
      tile.columns = ceil_div(tile.columns, 2 * kColumnStep) * kColumnStep;
    } else {
      break;
    }
  }
  return tile;
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
