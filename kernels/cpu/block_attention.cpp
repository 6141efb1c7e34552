#include "kernels/block_attention.h"

#include "kernels/cpu/block_tiles.h"

namespace quire::cpu {

namespace {

using Groups = std::vector<std::vector<KeyGroup>>;  // by row

Groups groups_of(const ops::BlockAttentionInputs& in, const BlockSizes& s) {
  Groups groups;
  for (int64_t row = 0; row < s.rows; ++row) groups.push_back(groups_of_row(in, s, row));
  return groups;
}

template <typename T>
void forward_tile(const Tensor& out, const Tensor& lse, const ops::BlockAttentionInputs& in, const BlockSizes& s,
                  const std::vector<KeyGroup>& groups, int64_t row, int64_t head, int64_t first_query) {
  constexpr int64_t kWidth = kLanes<T>;
  BlockTiles<T> tiles(in, s, groups, row, head, first_query);
  const int64_t count = tiles.count();
  T* const sums = scratch<T>(4, 3 * kBlockQueries);
  T* const tops = sums + kBlockQueries;
  T* const corrections = tops + kBlockQueries;
  std::fill(sums, sums + kBlockQueries, T{0});
  std::fill(tops, tops + kBlockQueries, std::numeric_limits<T>::lowest());
  T* const total = scratch<T>(5, kBlockQueries * s.value_size);
  std::fill(total, total + count * s.value_size, T{0});
  for (const KeyTile& tile : tiles.tiles()) {
    T* const p = tiles.exponentials(tile);
    for (int64_t a = 0; a < tiles.lanes(); a += kWidth) {
      const Vector<T> before = load_vector(tops + a);
      Vector<T> top = before;
      for (size_t g = tile.first; g < tile.last; ++g) top = larger<T>(top, load_vector(tiles.gates(tile, g) + a));
      store_vector(corrections + a, exponential<T>(before - top));
      store_vector(tops + a, top);
      store_vector(sums + a, load_vector(sums + a) * load_vector(corrections + a));
    }
    for (size_t g = tile.first; g < tile.last; ++g) {
      const KeyGroup& group = tiles.group(g);
      T* const rows = tiles.row_of(tile, p, group.begin);
      for (int64_t a = 0; a < tiles.lanes(); a += kWidth) {
        const Vector<T> share = exponential<T>(load_vector(tiles.gates(tile, g) + a) - load_vector(tops + a));
        store_vector(sums + a, load_vector(sums + a) + share * load_vector(tiles.masses(tile, g) + a));
        const Vector<T> factor = share * load_vector(tiles.scales(tile, g) + a);
        for (int64_t j = 0; j < group.regular(); ++j) {
          T* const x = rows + j * kBlockQueries + a;
          store_vector(x, load_vector(x) * factor);
        }
        if (group.landmark) store_vector(rows + group.regular() * kBlockQueries + a, Vector<T>{});
      }
    }
    for (int64_t a = 0; a < count; ++a) {
      if (corrections[a] != T{1}) ArrayView<T>(total + a * s.value_size, s.value_size) *= corrections[a];
    }
    block_product(total, s.value_size, Operand<T>{p, kBlockQueries, true}, tiles.values(tile), tiles.value_stride(),
                  count, s.value_size, tile.count, true);
  }
  T* const to = out.data<T>() + ((row * s.queries + first_query) * s.heads + head) * s.value_size;
  T* const log_sum = lse.data<T>() + (row * s.heads + head) * s.queries + first_query;
  for (int64_t a = 0; a < count; ++a) {
    const bool empty = sums[a] == T{0};
    ArrayView<T>(to + a * s.heads * s.value_size, s.value_size) =
        ConstArrayView<T>(total + a * s.value_size, s.value_size) * (empty ? T{0} : T{1} / sums[a]);
    log_sum[a] = empty ? -std::numeric_limits<T>::infinity() : tops[a] + std::log(sums[a]);
  }
}

// Rows are independent; one task is a row and a key head, so every gradient has one writer.
template <typename T>
struct Backward {
  const ops::BlockAttentionGradients& g;
  const Tensor& dout;
  const Tensor& dlse;
  const Tensor& out;
  const Tensor& lse;
  const ops::BlockAttentionInputs& in;
  const BlockSizes& s;
  const Groups& groups;

  static constexpr int64_t kWidth = kLanes<T>;

  T* key_gradient(const Tensor& d, int64_t row, int64_t kv_head, const KeyTile& tile, int64_t size) const {
    return d.data<T>() + ((row * s.keys + tile.begin) * s.kv_heads + kv_head) * size;
  }

  // Turns exponentials p of the tile into probabilities (rows of landmarks into 0), and gradients ds of probabilities
  // into those of logits. With the share a of a landmark and P the softmax within its block, a key has a P (dw - sum of
  // P dw) and the landmark a (sum of P dw - delta); a gate of the own block has p (dw - delta).
  void softmax_gradient(const BlockTiles<T>& tiles, const KeyTile& tile, const T* log_sum, const T* delta, T* p,
                        T* ds) const {
    for (size_t n = tile.first; n < tile.last; ++n) {
      const KeyGroup& group = tiles.group(n);
      T* const rows = tiles.row_of(tile, p, group.begin);
      T* const drows = tiles.row_of(tile, ds, group.begin);
      for (int64_t a = 0; a < tiles.lanes(); a += kWidth) {
        const Vector<T> share = exponential<T>(load_vector(tiles.gates(tile, n) + a) - load_vector(log_sum + a));
        const Vector<T> scale = load_vector(tiles.scales(tile, n) + a);
        const Vector<T> factor = share * scale;
        const Vector<T> inverse = load_vector(tiles.inverses(tile, n) + a);
        const Vector<T> d = load_vector(delta + a);
        Vector<T> inner{};
        for (int64_t j = 0; j < group.regular(); ++j) {
          T* const x = rows + j * kBlockQueries + a;
          const Vector<T> e = load_vector(x);
          inner += e * load_vector(drows + j * kBlockQueries + a);
          store_vector(x, e * factor);
        }
        const auto gated = inverse >= Vector<T>{};
        const Vector<T> shift = gated ? inner * inverse : d;
        for (int64_t j = 0; j < group.regular(); ++j) {
          T* const dx = drows + j * kBlockQueries + a;
          store_vector(dx, load_vector(rows + j * kBlockQueries + a) * (load_vector(dx) - shift));
        }
        if (!group.landmark) continue;
        const int64_t at = group.regular() * kBlockQueries + a;
        store_vector(rows + at, Vector<T>{});
        store_vector(drows + at, gated ? share * (scale * inner - d) : Vector<T>{});
      }
    }
  }

  void query_tile(int64_t row, int64_t head, int64_t first_query) const {
    BlockTiles<T> tiles(in, s, groups[static_cast<size_t>(row)], row, head, first_query);
    const int64_t count = tiles.count();
    const int64_t out_stride = s.heads * s.value_size;
    const int64_t out_at = ((row * s.queries + first_query) * s.heads + head) * s.value_size;
    const int64_t line = (row * s.heads + head) * s.queries + first_query;
    const T* const dy = dout.data<T>() + out_at;
    T* const delta = scratch<T>(4, 2 * kBlockQueries);
    T* const log_sum = delta + kBlockQueries;
    // For a query that sees nothing, and for lanes beyond the last query, exp(-inf - 0) gives the zero they need.
    std::fill(delta, delta + 2 * kBlockQueries, T{0});
    for (int64_t a = 0; a < count; ++a) {
      delta[a] = (ConstArrayView<T>(dy + a * out_stride, s.value_size) *
                  ConstArrayView<T>(out.data<T>() + out_at + a * out_stride, s.value_size))
                     .sum();
      const T whole = lse.data<T>()[line + a];
      if (!std::isinf(whole)) log_sum[a] = whole;
      if (dlse.defined() && !std::isinf(whole)) delta[a] -= dlse.data<T>()[line + a];
    }
    T* const dy_by_feature = scratch<T>(5, kBlockQueries * s.value_size);
    tiles.transpose_queries(dy_by_feature, dy, out_stride, s.value_size);
    T* const dcontent = scratch<T>(6, kBlockQueries * s.size);
    std::fill(dcontent, dcontent + count * s.size, T{0});
    for (const KeyTile& tile : tiles.tiles()) {
      T* const p = tiles.exponentials(tile);
      T* const ds = scratch<T>(7, tile.count * kBlockQueries);
      block_product(ds, kBlockQueries, Operand<T>{tiles.values(tile), tiles.value_stride()}, dy_by_feature,
                    kBlockQueries, tile.count, tiles.lanes(), s.value_size, false);
      softmax_gradient(tiles, tile, log_sum, delta, p, ds);
      if (g.dv.defined()) {
        block_product(key_gradient(g.dv, row, tiles.kv_head(), tile, s.value_size), tiles.value_stride(),
                      Operand<T>{p, kBlockQueries}, dy, out_stride, tile.count, s.value_size, count, true);
      }
      if (g.dk.defined()) {
        block_product(key_gradient(g.dk, row, tiles.kv_head(), tile, s.size), tiles.key_stride(),
                      Operand<T>{ds, kBlockQueries}, tiles.content(), s.size, tile.count, s.size, count, true);
      }
      block_product(dcontent, s.size, Operand<T>{ds, kBlockQueries, true}, tiles.keys(tile), tiles.key_stride(), count,
                    s.size, tile.count, true);
    }
    T* const dq = g.dq.data<T>() + ((row * s.queries + first_query) * s.heads + head) * s.size;
    for (int64_t a = 0; a < count; ++a) {
      ArrayView<T>(dq + a * s.heads * s.size, s.size) =
          ConstArrayView<T>(dcontent + a * s.size, s.size) * static_cast<T>(in.scale);
    }
  }

  void task(int64_t row, int64_t kv_head) const {
    const int64_t per_kv = s.heads / s.kv_heads;
    for (int64_t head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
      for (int64_t first = 0; first < s.queries; first += kBlockQueries) query_tile(row, head, first);
    }
  }
};

void block_attention(const Tensor& out, const Tensor& lse, const ops::BlockAttentionInputs& in) {
  const BlockSizes s(in);
  check_block_attention(s, out, lse, in);
  const Groups groups = groups_of(in, s);
  dispatch("block_attention", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const int64_t tiles = ceil_div(s.queries, kBlockQueries);
    parallel_for(s.rows * s.heads * tiles, [&](int64_t n) {
      const int64_t row = n / (s.heads * tiles);
      forward_tile<T>(out, lse, in, s, groups[static_cast<size_t>(row)], row, n / tiles % s.heads,
                      n % tiles * kBlockQueries);
    });
  });
}

void block_attention_backward(const ops::BlockAttentionGradients& gradients, const Tensor& dout, const Tensor& dlse,
                              const Tensor& out, const Tensor& lse, const ops::BlockAttentionInputs& in) {
  const BlockSizes s(in);
  check_block_attention_backward(s, gradients, dout, dlse, out, lse, in);
  if (gradients.dk.defined()) gradients.dk.zero();
  if (gradients.dv.defined()) gradients.dv.zero();
  const Groups groups = groups_of(in, s);
  dispatch("block_attention_backward", in.q.dtype(), [&](auto type) {
    using T = decltype(type);
    const Backward<T> backward{gradients, dout, dlse, out, lse, in, s, groups};
    parallel_for(s.rows * s.kv_heads, [&](int64_t n) { backward.task(n / s.kv_heads, n % s.kv_heads); });
  });
}

}  // namespace

void bind_block_attention() {
  ops::block_attention.bind(DeviceKind::cpu, block_attention);
  ops::block_attention_backward.bind(DeviceKind::cpu, block_attention_backward);
}

}  // namespace quire::cpu
