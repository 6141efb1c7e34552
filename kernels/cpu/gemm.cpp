#include "kernels/gemm.h"

#include <limits>

#include "kernels/checks.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/product.h"
#include "kernels/elementwise.h"

namespace quire::cpu {

namespace {

// Each tile of c is one single-threaded product over the whole of K. The cut of c changes no bit, so it may depend on
// the number of threads.
struct Tiling {
  int64_t rows;
  int64_t columns;
};

// Returns the cut with the least work for the busiest thread: whole rounds of tiles, each with the cost of its area
// plus the packing of its two sides. Tiles have at most 512 rows and columns, which fits the second-level cache of a
// core, and columns come in panels.
Tiling tiling(int64_t m, int64_t n) {
  constexpr int64_t kMaxTile = 512;
  constexpr int64_t kMinTile = 64;
  constexpr int64_t kPanelColumns = 32;
  constexpr int64_t kPackingShare = 8;  // packing a column costs as much as this many products per row
  const int64_t threads = ThreadPool::current().threads();
  Tiling best{};
  int64_t min_cost = std::numeric_limits<int64_t>::max();
  int64_t before = 0;
  for (int64_t row_parts = ceil_div(m, kMaxTile); row_parts <= ceil_div(m, kMaxTile) + threads; ++row_parts) {
    const int64_t rows = ceil_div(m, row_parts);
    if (before != 0 && rows < kMinTile) break;
    before = rows;
    int64_t columns = 0;
    for (int64_t parts = ceil_div(n, kMaxTile); parts <= ceil_div(n, kMaxTile) + threads; ++parts) {
      const int64_t tile_columns = ceil_div(ceil_div(n, parts), kPanelColumns) * kPanelColumns;
      if (columns != 0 && (tile_columns < kMinTile || tile_columns == columns)) continue;
      columns = tile_columns;
      const int64_t rounds = ceil_div(ceil_div(m, rows) * ceil_div(n, columns), threads);
      const int64_t cost = rounds * (rows * columns + kPackingShare * (rows + columns));
      if (cost < min_cost) {
        min_cost = cost;
        best = {rows, columns};
      }
    }
  }
  return best;
}

template <typename T>
void add_to_rows(T* c, int64_t stride, const T* bias, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) c[i * stride + j] += bias[j];
  }
}

template <typename T>
void add_residual(T* c, const T* residual, int64_t stride, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) c[i * stride + j] = residual[i * stride + j] + c[i * stride + j];
  }
}

template <typename T>
void run(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options, int64_t k) {
  const bool several = c.rank() == 3;
  const int64_t count = several ? c.dim(0) : 1;
  const int64_t m = c.dim(-2);
  const int64_t n = c.dim(-1);
  if (count == 0 || m == 0 || n == 0) return;
  const T* bias = options.bias.defined() ? options.bias.data<T>() : nullptr;
  const T* residual = options.residual.defined() ? options.residual.data<T>() : nullptr;
  const auto of_product = [several](const Tensor& x, int64_t index) {
    return x.data<T>() + (several ? index * x.stride(0) : 0);
  };
  if (k == 0) {
    for (int64_t i = 0; i < count * m && !options.accumulate; ++i) {
      std::fill_n(of_product(c, i / m) + i % m * c.stride(-2), n, T{0});
    }
    if (bias != nullptr) add_to_rows(c.data<T>(), c.stride(-2), bias, m, n);
    if (residual != nullptr) add_residual(c.data<T>(), residual, n, m, n);
    return;
  }
  const Tiling tile = tiling(m, n);
  const int64_t across = ceil_div(n, tile.columns);
  const int64_t tiles = ceil_div(m, tile.rows) * across;
  parallel_for(count * tiles, [&](int64_t index) {
    const int64_t product = index / tiles;
    const Operand<T> left{of_product(a, product), a.stride(-2), options.transpose_a};
    const Operand<T> right{of_product(b, product), b.stride(-2), options.transpose_b};
    const int64_t i = index % tiles / across * tile.rows;
    const int64_t j = index % tiles % across * tile.columns;
    T* const to = of_product(c, product) + i * c.stride(-2) + j;
    const int64_t rows = std::min(tile.rows, m - i);
    const int64_t columns = std::min(tile.columns, n - j);
    packed_product(to, c.stride(-2), left.from(i, 0), right.from(0, j), rows, columns, k, options.accumulate);
    if (bias != nullptr) add_to_rows(to, c.stride(-2), bias + j, rows, columns);
    if (residual != nullptr) add_residual(to, residual + i * n + j, n, rows, columns);
  });
}

// bf16 is for storage only on the CPU: whole operands are converted.
Tensor in_f32(const Tensor& x) {
  const Tensor dense = Tensor::empty(x.shape(), x.dtype());
  ops::copy(dense, x);
  const Tensor wide = Tensor::empty(x.shape(), DType::f32);
  ops::convert(wide, dense);
  return wide;
}

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options) {
  const int64_t k = check_gemm(c, a, b, options);
  if (options.sums.defined()) ops::sum_rows(options.sums, a, options.add_sums);
  if (a.dtype() == DType::bf16) {
    QUIRE_CHECK(!options.pre.defined(), "gemm: bf16 on the CPU keeps nothing from before the activation; use f32");
    const Tensor wide = c.dtype() == DType::f32 ? c : in_f32(c);
    ops::GemmOptions in_wide = options;
    in_wide.sums = {};
    for (Tensor* operand : {&in_wide.residual, &in_wide.at}) {
      if (operand->defined() && operand->dtype() == DType::bf16) *operand = in_f32(*operand);
    }
    gemm(wide, in_f32(a), in_f32(b), in_wide);
    if (c.dtype() == DType::f32) return;
    const Tensor stored = Tensor::empty(c.shape(), c.dtype());
    ops::convert(stored, wide);
    ops::copy(c, stored);
    return;
  }
  const Tensor& product = options.pre.defined() ? options.pre : c;
  dispatch("gemm", c.dtype(), [&](auto type) { run<decltype(type)>(product, a, b, options, k); });
  // These run over the whole result and not by tiles, whose cut may change: vector code and the code for remaining
  // elements round differently.
  if (options.activation) activation(c, product, *options.activation);
  if (options.gradient_of) activation_backward(c, c, options.at, *options.gradient_of);
}

}  // namespace

void bind_gemm() {
  ops::gemm.bind(DeviceKind::cpu, gemm);
}

}  // namespace quire::cpu
