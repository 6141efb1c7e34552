#include "kernels/cpu/attention_blocks.h"

namespace quire::cpu {

namespace {

// Rows are dealt to at most four groups, each with its own sums of what all rows share (r, u, v_bias, bias); the groups
// are added in order. One task is a group and a key head, so every gradient has one writer.
constexpr int64_t kRowGroups = 4;

template <typename T>
struct Backward {
  const ops::AttentionGradients& g;
  const Tensor& dout;
  const Tensor& out;
  const Tensor& lse;
  const ops::AttentionInputs& in;
  const AttentionSizes& s;
  int64_t groups;
  Tensor dr, du, dv_bias, dbias;  // per group

  static T* at(const Tensor& tensor, int64_t offset) { return tensor.data<T>() + offset; }

  MatrixView<T> key_gradient(const Tensor& d, int64_t row, int64_t kv_head, const KeyBlock& b, int64_t size) const {
    const int64_t per_row = b.cached ? s.slots : s.queries;
    return {at(d, ((row * per_row + b.index) * s.kv_heads + kv_head) * size), b.count, size,
            Eigen::OuterStride<>(s.kv_heads * size)};
  }

  void query_block(int64_t group, int64_t row, int64_t head, int64_t first_query) const {
    QueryBlock<T> block(in, s, row, head, first_query);
    const int64_t count = block.count();
    const int64_t out_stride = s.heads * s.value_size;
    const int64_t out_at = ((row * s.queries + first_query) * s.heads + head) * s.value_size;
    const ConstMatrixView<T> dy(at(dout, out_at), count, s.value_size, Eigen::OuterStride<>(out_stride));
    const ConstMatrixView<T> y(at(out, out_at), count, s.value_size, Eigen::OuterStride<>(out_stride));
    const T* log_sum = at(lse, (row * s.heads + head) * s.queries + first_query);
    T* delta = scratch<T>(4, kQueryBlock);
    for (int64_t a = 0; a < count; ++a) delta[a] = dy.row(a).dot(y.row(a));

    MatrixView<T> dcontent(scratch<T>(5, kQueryBlock * s.size), count, s.size, Eigen::OuterStride<>(s.size));
    MatrixView<T> dposition(scratch<T>(6, kQueryBlock * s.size), count, s.size, Eigen::OuterStride<>(s.size));
    dcontent.setZero();
    dposition.setZero();
    const bool with_terms = in.r.defined();
    if (!block.empty()) {
      const int64_t ring_head = s.slots > 0 ? in.cache_head.data<int32_t>()[row] : 0;
      for_key_blocks(block.low(), block.high(), s.slots, ring_head, [&](const KeyBlock& keys) {
        MatrixView<T> p = block.logits(keys);
        MatrixView<T> ds(scratch<T>(7, kQueryBlock * kKeyBlock), count, keys.count, Eigen::OuterStride<>(kKeyBlock));
        ds.noalias() = dy * block.values(keys).transpose();
        T* dterms = nullptr;
        const int64_t terms = with_terms ? block.term_count(keys) : 0;
        if (with_terms) {
          dterms = scratch<T>(8, kQueryBlock * kTermBlock);
          std::fill(dterms, dterms + count * kTermBlock, T{0});
        }
        for (int64_t a = 0; a < count; ++a) {
          T* const prob = p.data() + a * kKeyBlock;
          T* const grad = ds.data() + a * kKeyBlock;
          const int64_t begin = std::min(block.column_begin(a, keys), keys.count);
          const int64_t end = std::max(begin, block.column_end(a, keys));
          const int64_t width = end - begin;
          std::fill(prob, prob + begin, T{0});
          std::fill(prob + end, prob + keys.count, T{0});
          std::fill(grad, grad + begin, T{0});
          std::fill(grad + end, grad + keys.count, T{0});
          if (width == 0) continue;
          ArrayView<T> visible(prob + begin, width);
          ArrayView<T> dvisible(grad + begin, width);
          visible = (visible - log_sum[a]).exp();
          if (in.dropout > 0) block.apply_dropout(grad, a, keys);
          dvisible = visible * (dvisible - delta[a]);
          if (in.dropout > 0) block.apply_dropout(prob, a, keys);  // dV sees what the forward pass multiplied
          if (dbias.defined()) {
            ArrayView<T>(at(dbias, (group * s.heads + head) * s.entries + block.bias_index(a, keys) + begin), width) +=
                dvisible;
          }
          if (with_terms) {
            ArrayView<T>(dterms + a * kTermBlock + block.term_column(a, keys) + begin, width) = dvisible;
          }
        }
        const Tensor& dk = keys.cached ? g.dcache_k : g.dk;
        const Tensor& dv = keys.cached ? g.dcache_v : g.dv;
        if (dv.defined()) {
          key_gradient(dv, row, block.kv_head(), keys, s.value_size).noalias() += p.transpose() * dy;
        }
        if (dk.defined()) {
          key_gradient(dk, row, block.kv_head(), keys, s.size).noalias() += ds.transpose() * block.content();
        }
        dcontent.noalias() += ds * block.keys(keys);
        if (with_terms) {
          const ConstMatrixView<T> dt(dterms, count, terms, Eigen::OuterStride<>(kTermBlock));
          dposition.noalias() += dt * block.table(keys);
          MatrixView<T> table(at(dr, ((group * s.entries + block.table_row(keys)) * s.heads + head) * s.size), terms,
                              s.size, Eigen::OuterStride<>(s.heads * s.size));
          table.noalias() += dt.transpose() * block.positional();
        }
      });
    }
    const T factor = static_cast<T>(in.scale);
    MatrixView<T> dq(at(g.dq, ((row * s.queries + first_query) * s.heads + head) * s.size), count, s.size,
                     Eigen::OuterStride<>(s.heads * s.size));
    dq = factor * (dcontent + dposition);
    if (du.defined()) {
      MatrixView<T>(at(du, (group * s.heads + head) * s.size), 1, s.size, Eigen::OuterStride<>(s.size)) +=
          factor * dcontent.colwise().sum();
      MatrixView<T>(at(dv_bias, (group * s.heads + head) * s.size), 1, s.size, Eigen::OuterStride<>(s.size)) +=
          factor * dposition.colwise().sum();
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

// total = sum over the leading axis of parts, in order.
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

void attention_backward(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor& out,
                        const Tensor& lse, const ops::AttentionInputs& in) {
  const AttentionSizes s(in);
  QUIRE_CHECK(dout.is_contiguous() && dout.shape() == out.shape(), "attention_backward: dout {}, out {}",
              dout.shape().to_string(), out.shape().to_string());
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
  if (in.bias.defined() && gradients.dbias.defined()) dbias = Tensor::zeros({groups, s.heads, s.entries}, type);
  dispatch("attention_backward", type, [&](auto t) {
    using T = decltype(t);
    const Backward<T> backward{gradients, dout, out, lse, in, s, groups, dr, du, dv_bias, dbias};
    parallel_for(groups * s.kv_heads, [&](int64_t task) { backward.task(task / s.kv_heads, task % s.kv_heads); });
    add_groups<T>(gradients.dr, dr);
    add_groups<T>(gradients.du, du);
    add_groups<T>(gradients.dv_bias, dv_bias);
    add_groups<T>(gradients.dbias, dbias);
  });
}

}  // namespace

void bind_attention_backward() {
  ops::attention_backward.bind(DeviceKind::cpu, attention_backward);
}

}  // namespace quire::cpu
