#include "kernels/cpu/attention_blocks.h"

namespace quire::cpu {

namespace {

// Rows are assigned to at most four groups, each with separate sums of the gradients that all rows share (r, u, v_bias,
// bias); the groups are added in order. One task is a group and a key head, so every gradient has one writer.
constexpr int64_t kRowGroups = 4;

template <typename T>
struct Backward {
  const ops::AttentionGradients& g;
  const Tensor& dout;
  const Tensor& out;
  const Tensor& lse;
  const ops::AttentionInputs& in;
  const AttentionSizes& s;
  const PositionTerms<T>& tables;
  int64_t groups;
  Tensor dr, du, dv_bias;  // per group
  Tensor dbias;            // per group, by distance with margins

  static T* at(const Tensor& tensor, int64_t offset) { return tensor.data<T>() + offset; }

  T* key_gradient(const Tensor& d, int64_t row, int64_t kv_head, const KeyBlock& b, int64_t size) const {
    const int64_t per_row = b.cached ? s.slots : s.queries;
    return at(d, ((row * per_row + b.index) * s.kv_heads + kv_head) * size);
  }

  // Turns logits p into probabilities, and gradients ds of probabilities into those of logits. Both are [keys,
  // kQueryBlock].
  static void softmax_gradient(const QueryBlock<T>& block, const KeyBlock& keys, const T* log_sum, const T* delta, T* p,
                               T* ds) {
    for (int64_t a = 0; a < block.lanes(); a += kLanes<T>) {
      const Vector<T> l = load_vector(log_sum + a);
      const Vector<T> d = load_vector(delta + a);
      for (int64_t j = 0; j < keys.count; ++j) {
        T* const x = p + j * kQueryBlock + a;
        T* const dx = ds + j * kQueryBlock + a;
        const Vector<T> probability = exponential<T>(load_vector(x) - l);
        store_vector(x, probability);
        store_vector(dx, probability * (load_vector(dx) - d));
      }
    }
  }

  // Writes gradients of the position terms, which are stored by query like the terms.
  static void turn_terms(const QueryBlock<T>& block, const KeyBlock& keys, const T* ds, T* dterms) {
    constexpr int64_t kWidth = kLanes<T>;
    for (int64_t a = 0; a < block.lanes(); a += kWidth) {
      const int64_t queries = std::min(kWidth, block.count() - a);
      for (int64_t j = 0; j < keys.count; j += kWidth) {
        Vector<T> x[kWidth];
        for (int64_t i = 0; i < kWidth; ++i) {
          x[i] = j + i < keys.count ? load_vector(ds + (j + i) * kQueryBlock + a) : Vector<T>{};
        }
        transpose_square<T>(x);
        for (int64_t i = 0; i < queries; ++i) store_vector(dterms + block.term_offset(a + i, keys) + j, x[i]);
      }
    }
  }

  void query_block(int64_t group, int64_t row, int64_t head, int64_t first_query) const {
    QueryBlock<T> block(in, s, tables, row, head, first_query);
    const int64_t count = block.count();
    const int64_t out_stride = s.heads * s.value_size;
    const int64_t out_at = ((row * s.queries + first_query) * s.heads + head) * s.value_size;
    const int64_t in_lse = (row * s.heads + head) * s.queries + first_query;
    const T* dy = at(dout, out_at);
    T* const delta = scratch<T>(5, kQueryBlock);
    T* const log_sum = scratch<T>(6, kQueryBlock);
    std::fill(delta, delta + kQueryBlock, T{0});
    // For a query that sees nothing, and for lanes beyond the last query, exp(-inf - 0) gives the zero they need.
    std::fill(log_sum, log_sum + kQueryBlock, T{0});
    for (int64_t a = 0; a < count; ++a) {
      delta[a] = g.delta.defined() ? at(g.delta, in_lse)[a]
                                   : (ConstArrayView<T>(dy + a * out_stride, s.value_size) *
                                      ConstArrayView<T>(at(out, out_at) + a * out_stride, s.value_size))
                                         .sum();
      const T l = at(lse, in_lse)[a];
      if (std::isfinite(l)) log_sum[a] = l;
    }
    T* const dy_by_feature = scratch<T>(7, kQueryBlock * s.value_size);
    block.by_feature(dy_by_feature, dy, out_stride, s.value_size);

    T* const dcontent = scratch<T>(8, kQueryBlock * s.size);
    T* const dposition = scratch<T>(9, kQueryBlock * s.size);
    std::fill(dcontent, dcontent + count * s.size, T{0});
    std::fill(dposition, dposition + count * s.size, T{0});
    T* const ds = scratch<T>(10, kQueryBlock * kKeyBlock);
    T* const dterms = in.r.defined() ? scratch<T>(11, block.term_buffer()) : nullptr;
    const auto clear_terms = [&] { std::fill(dterms, dterms + count * block.term_stride(), T{0}); };
    const auto add_terms = [&](const KeyBlock& keys) {
      const int64_t terms = block.term_count(keys);
      const Operand<T> by_query{dterms + kTermMargin, block.term_stride()};
      block_product(dposition, s.size, by_query, block.table(keys), s.heads * s.size, count, s.size, terms, true);
      block_product(at(dr, ((group * s.entries + block.table_row(keys)) * s.heads + head) * s.size), s.heads * s.size,
                    Operand<T>{by_query.data, by_query.stride, true}, block.positional(), s.size, terms, s.size, count,
                    true);
    };
    if (block.terms_at_once()) clear_terms();
    block.for_visible_blocks([&](const KeyBlock& keys) {
      T* const p = block.logits(keys);
      block_product(ds, kQueryBlock, Operand<T>{block.values(keys), block.value_stride()}, dy_by_feature, kQueryBlock,
                    keys.count, block.lanes(), s.value_size, false);
      if (in.dropout > 0) block.apply_dropout(ds, keys);
      softmax_gradient(block, keys, log_sum, delta, p, ds);
      // dV uses the probabilities after dropout, as the forward pass did
      if (in.dropout > 0) block.apply_dropout(p, keys);
      if (dbias.defined() && keys.terms) {
        T* const by_distance = at(dbias, (group * s.heads + head) * dbias.dim(2));
        for (int64_t j = 0; j < keys.count; ++j) {
          T* const to = by_distance + block.bias_offset(j, keys);
          for (int64_t a = 0; a < block.lanes(); a += kLanes<T>) {
            store_vector(to + a, load_vector(to + a) + load_vector(ds + j * kQueryBlock + a));
          }
        }
      }
      const Tensor& dk = keys.cached ? g.dcache_k : g.dk;
      const Tensor& dv = keys.cached ? g.dcache_v : g.dv;
      if (dv.defined()) {
        block_product(key_gradient(dv, row, block.kv_head(), keys, s.value_size), block.value_stride(),
                      Operand<T>{p, kQueryBlock}, dy, out_stride, keys.count, s.value_size, count, true);
      }
      if (dk.defined()) {
        block_product(key_gradient(dk, row, block.kv_head(), keys, s.size), block.key_stride(),
                      Operand<T>{ds, kQueryBlock}, block.content(), s.size, keys.count, s.size, count, true);
      }
      block_product(dcontent, s.size, Operand<T>{ds, kQueryBlock, true}, block.keys(keys), block.key_stride(), count,
                    s.size, keys.count, true);
      if (in.r.defined() && keys.terms) {
        if (!block.terms_at_once()) clear_terms();
        turn_terms(block, keys, ds, dterms);
        if (!block.terms_at_once()) add_terms(keys);
      }
    });
    if (block.terms_at_once()) add_terms(block.all_terms());
    const T factor = static_cast<T>(in.scale);
    for (int64_t a = 0; a < count; ++a) {
      ArrayView<T> dq(at(g.dq, ((row * s.queries + first_query + a) * s.heads + head) * s.size), s.size);
      const ConstArrayView<T> content(dcontent + a * s.size, s.size);
      const ConstArrayView<T> position(dposition + a * s.size, s.size);
      dq = factor * (content + position);
      if (du.defined()) {
        ArrayView<T>(at(du, (group * s.heads + head) * s.size), s.size) += factor * content;
        ArrayView<T>(at(dv_bias, (group * s.heads + head) * s.size), s.size) += factor * position;
      }
    }
  }

  void task(int64_t group, int64_t kv_head) const {
    const int64_t per_kv = s.heads / s.kv_heads;
    for (int64_t row = s.rows * group / groups; row < s.rows * (group + 1) / groups; ++row) {
      for (int64_t head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
        for (int64_t first = 0; first < s.queries; first += kQueryBlock) query_block(group, row, head, first);
      }
    }
  }
};

// Computes total = sum over the leading axis of parts, in order.
template <typename T>
void add_groups(const Tensor& total, const Tensor& parts) {
  if (!total.defined()) return;
  const int64_t count = total.numel();
  for_elements(count, [&](int64_t begin, int64_t end) {
    ArrayView<T> sum(total.data<T>() + begin, end - begin);
    sum = ConstArrayView<T>(parts.data<T>() + begin, end - begin);
    for (int64_t group = 1; group < parts.dim(0); ++group) {
      sum += ConstArrayView<T>(parts.data<T>() + group * count + begin, end - begin);
    }
  });
}

// Does the same for a bias: total [H, N] by table entry, parts [groups, H, N + margins] by distance.
template <typename T>
void add_bias_groups(const Tensor& total, const Tensor& parts) {
  const int64_t entries = total.dim(1);
  const int64_t padded = parts.dim(2);
  for (int64_t h = 0; h < total.dim(0); ++h) {
    for (int64_t distance = 0; distance < entries; ++distance) {
      T sum = 0;
      for (int64_t group = 0; group < parts.dim(0); ++group) {
        sum += parts.data<T>()[(group * total.dim(0) + h) * padded + kBiasMargin + distance];
      }
      total.data<T>()[h * entries + entries - 1 - distance] = sum;
    }
  }
}

void attention_backward(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor& out,
                        const Tensor& lse, const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  check_attention_backward(s, gradients, dout, out, lse, in);
  for (const Tensor* d : {&gradients.dk, &gradients.dv, &gradients.dcache_k, &gradients.dcache_v}) {
    if (d->defined()) d->zero();
  }
  const int64_t groups = std::min(s.rows, kRowGroups);
  const DType type = in.q.dtype();
  Tensor dr;
  Tensor du;
  Tensor dv_bias;
  Tensor dbias;
  if (in.r.defined()) {
    dr = Tensor::zeros({groups, s.entries, s.heads, s.size}, type);
    du = Tensor::zeros({groups, s.heads, s.size}, type);
    dv_bias = Tensor::zeros({groups, s.heads, s.size}, type);
  }
  if (in.bias.defined() && gradients.dbias.defined()) {
    dbias = Tensor::zeros({groups, s.heads, s.entries + 2 * kBiasMargin}, type);
  }
  dispatch("attention_backward", type, [&](auto t) {
    using T = decltype(t);
    const PositionTerms<T> tables(in, s);
    const Backward<T> backward{gradients, dout, out, lse, in, s, tables, groups, dr, du, dv_bias, dbias};
    parallel_for(groups * s.kv_heads, [&](int64_t task) { backward.task(task / s.kv_heads, task % s.kv_heads); });
    add_groups<T>(gradients.dr, dr);
    add_groups<T>(gradients.du, du);
    add_groups<T>(gradients.dv_bias, dv_bias);
    if (dbias.defined()) add_bias_groups<T>(gradients.dbias, dbias);
  });
}

}  // namespace

void bind_attention_backward() {
  ops::attention_backward.bind(DeviceKind::cpu, attention_backward);
}

}  // namespace quire::cpu
