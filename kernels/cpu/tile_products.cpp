// The innermost products: a tile of c stays in registers while the sum runs over depth.
#include "kernels/cpu/product.h"

namespace quire::cpu {

namespace {

// c [R, columns] (+)= a [R, depth] b [depth, V vectors]; columns <= V vectors are written. a is transposed or not.
template <typename T, int R, int V, bool TransposedA>
void tile_product(int64_t depth, const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* c, int64_t c_stride,
                  int64_t columns, bool accumulate) {
  constexpr int kWidth = kLanes<T>;
  Vector<T> sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Vector<T>{};
  }
  // Each pointer serves three rows: addressing modes reach base, base + stride and base + 2 stride.
  const T* rows[(R + 2) / 3];
  for (int g = 0; g < (R + 2) / 3; ++g) rows[g] = a + 3 * g * (TransposedA ? 0 : a_stride);
#pragma GCC unroll 4
  for (int64_t i = 0; i < depth; ++i) {
    Vector<T> line[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) line[v] = load_vector(b + v * kWidth);
    b += b_stride;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const T factor = TransposedA ? a[r] : rows[r / 3][(r % 3) * a_stride + i];
      const Vector<T> spread = factor - Vector<T>{};
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] += spread * line[v];
    }
    if constexpr (TransposedA) a += a_stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    T* const to = c + r * c_stride;
    if (columns == V * kWidth) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        T* const part = to + v * kWidth;
        store_vector(part, accumulate ? load_vector(part) + sum[r][v] : sum[r][v]);
      }
    } else {
      T values[V * kWidth];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) store_vector(values + v * kWidth, sum[r][v]);
      for (int64_t j = 0; j < columns; ++j) to[j] = accumulate ? to[j] + values[j] : values[j];
    }
  }
}

template <typename T, int V, bool TransposedA, int... R>
constexpr std::array<TileProduct<T>, sizeof...(R)> tile_products(std::integer_sequence<int, R...>) {
  return {tile_product<T, R + 1, V, TransposedA>...};
}

template <typename T>
constexpr TileProducts<T> all_tile_products() {
  using Rows = std::make_integer_sequence<int, kTileRows>;
  return {{{tile_products<T, kTileVectors, false>(Rows{}), tile_products<T, 1, false>(Rows{})},
           {tile_products<T, kTileVectors, true>(Rows{}), tile_products<T, 1, true>(Rows{})}}};
}

}  // namespace

constinit const TileProducts<float> kTileProductsF32 = all_tile_products<float>();
constinit const TileProducts<double> kTileProductsF64 = all_tile_products<double>();

}  // namespace quire::cpu
