#include "tests/support/attention_reference.h"

#include <cmath>
#include <limits>

namespace quire::test {

namespace {

struct Pair {
  int64_t row, query, head, position;  // key position: below zero in the ring
};

class Reference {
 public:
  explicit Reference(const ops::AttentionInputs& inputs)
      : in(inputs),
        rows(in.q.dim(0)),
        queries(in.q.dim(1)),
        heads(in.q.dim(2)),
        kv_heads(in.k.dim(2)),
        size(in.q.dim(3)),
        value_size(in.v.dim(3)),
        slots(in.cache_k.defined() ? in.cache_k.dim(1) : 0) {}

  bool visible(const Pair& p) const {
    const int64_t last = in.last_visible.defined() ? in.last_visible.data<int32_t>()[p.row * queries + p.query]
                                                   : p.query - (in.attend_self ? 0 : 1);
    return p.position >= in.first_visible.data<int32_t>()[p.row * queries + p.query] && p.position <= last;
  }
  int64_t distance(const Pair& p) const { return p.query - p.position; }

  // The vector of the pair's key in k or v (or their gradients).
  double* key(const Pair& p, const Tensor& segment, const Tensor& ring, int64_t width) const {
    const int64_t kv_head = p.head / (heads / kv_heads);
    if (p.position >= 0) {
      return segment.data<double>() + ((p.row * queries + p.position) * kv_heads + kv_head) * width;
    }
    const int64_t slot = (in.cache_head.data<int32_t>()[p.row] + p.position + slots) % slots;
    return ring.data<double>() + ((p.row * slots + slot) * kv_heads + kv_head) * width;
  }
  // When tables end, keys beyond them have no position terms.
  bool reached(const Pair& p, const Tensor& table, int axis) const {
    return table.defined() && (!in.terms_end || distance(p) < table.dim(axis));
  }
  double* query(const Pair& p, const Tensor& q) const {
    return q.data<double>() + ((p.row * queries + p.query) * heads + p.head) * size;
  }
  double* term(const Pair& p, const Tensor& r) const {
    return r.data<double>() + ((r.dim(0) - 1 - distance(p)) * heads + p.head) * size;
  }
  double& bias(const Pair& p, const Tensor& table) const {
    const int64_t entries = table.dim(1);
    return table.data<double>()[p.head * entries + entries - 1 - distance(p)];
  }
  double* of_head(const Pair& p, const Tensor& t) const { return t.data<double>() + p.head * size; }

  double logit(const Pair& p) const {
    const double* q = query(p, in.q);
    const double* k = key(p, in.k, in.cache_k, size);
    const double* u = in.u.defined() ? of_head(p, in.u) : nullptr;
    double sum = 0;
    for (int64_t d = 0; d < size; ++d) sum += (q[d] + (u != nullptr ? u[d] : 0)) * k[d];
    if (reached(p, in.r, 0)) {
      const double* v_bias = of_head(p, in.v_bias);
      const double* r = term(p, in.r);
      for (int64_t d = 0; d < size; ++d) sum += (q[d] + v_bias[d]) * r[d];
    }
    return in.scale * sum + (reached(p, in.bias, 1) ? bias(p, in.bias) : 0);
  }

  // mask / (1 - p) of the documented counter.
  double kept(const Pair& p) const {
    if (in.dropout == 0) return 1;
    const auto element =
        static_cast<uint32_t>(in.last_visible.defined() ? p.head * (slots + 2 * queries) + queries + distance(p)
                                                        : p.head * (slots + queries) + distance(p));
    const auto bits = philox(in.key, in.scope, static_cast<uint32_t>(in.first_row + p.row),
                             static_cast<uint32_t>(p.query), element / 4);
    return bits[element % 4] * 0x1p-32 >= in.dropout ? 1 / (1 - in.dropout) : 0;
  }

  template <typename Body>
  void for_each_query(Body&& body) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t query = 0; query < queries; ++query) {
        for (int64_t head = 0; head < heads; ++head) body(Pair{row, query, head, 0});
      }
    }
  }
  template <typename Body>
  void for_each_visible(Pair p, Body&& body) const {
    for (p.position = -slots; p.position < queries; ++p.position) {
      if (visible(p)) body(p);
    }
  }

  const ops::AttentionInputs& in;
  int64_t rows, queries, heads, kv_heads, size, value_size, slots;
};

Tensor zeros_like(const Tensor& t) {
  return t.defined() ? Tensor::zeros(t.shape(), t.dtype()) : Tensor();
}

}  // namespace

AttentionReference attention_reference(const ops::AttentionInputs& in) {
  const Reference ref(in);
  AttentionReference result{Tensor::zeros({ref.rows, ref.queries, ref.heads, ref.value_size}, DType::f64),
                            Tensor::zeros({ref.rows, ref.heads, ref.queries}, DType::f64),
                            Tensor::zeros({ref.rows, ref.heads, ref.queries, ref.slots + ref.queries}, DType::f64)};
  ref.for_each_query([&](const Pair& q) {
    double top = -std::numeric_limits<double>::infinity();
    ref.for_each_visible(q, [&](const Pair& p) { top = std::max(top, ref.logit(p)); });
    double sum = 0;
    ref.for_each_visible(q, [&](const Pair& p) { sum += std::exp(ref.logit(p) - top); });
    const int64_t line = (q.row * ref.heads + q.head) * ref.queries + q.query;
    result.lse.data<double>()[line] = sum > 0 ? top + std::log(sum) : top;
    double* out = result.out.data<double>() + ((q.row * ref.queries + q.query) * ref.heads + q.head) * ref.value_size;
    ref.for_each_visible(q, [&](const Pair& p) {
      const double prob = std::exp(ref.logit(p) - top) / sum;
      result.prob.data<double>()[line * (ref.slots + ref.queries) + p.position + ref.slots] = prob;
      const double* v = ref.key(p, in.v, in.cache_v, ref.value_size);
      for (int64_t d = 0; d < ref.value_size; ++d) out[d] += prob * ref.kept(p) * v[d];
    });
  });
  return result;
}

ops::AttentionGradients attention_reference_gradients(const ops::AttentionInputs& in, const Tensor& dout) {
  const AttentionReference forward = attention_reference(in);
  return attention_reference_gradients(in, dout, forward.out, forward.lse);
}

ops::AttentionGradients attention_reference_gradients(const ops::AttentionInputs& in, const Tensor& dout,
                                                      const Tensor& out, const Tensor& lse) {
  const Reference ref(in);
  ops::AttentionGradients g{zeros_like(in.q),       zeros_like(in.k),       zeros_like(in.v),
                            zeros_like(in.cache_k), zeros_like(in.cache_v), zeros_like(in.bias),
                            zeros_like(in.r),       zeros_like(in.u),       zeros_like(in.v_bias)};
  ref.for_each_query([&](const Pair& q) {
    const double log_sum = lse.data<double>()[(q.row * ref.heads + q.head) * ref.queries + q.query];
    const int64_t at = ((q.row * ref.queries + q.query) * ref.heads + q.head) * ref.value_size;
    const double* y = out.data<double>() + at;
    const double* dy = dout.data<double>() + at;
    const auto dprob = [&](const Pair& p) {
      const double* v = ref.key(p, in.v, in.cache_v, ref.value_size);
      double dot = 0;
      for (int64_t d = 0; d < ref.value_size; ++d) dot += dy[d] * v[d];
      return dot * ref.kept(p);
    };
    double mean = 0;  // mean of dp over p, which the gradient of a softmax subtracts
    for (int64_t d = 0; d < ref.value_size; ++d) mean += dy[d] * y[d];
    ref.for_each_visible(q, [&](const Pair& p) {
      const double prob = std::exp(ref.logit(p) - log_sum);
      const double kept = ref.kept(p);
      double* dv = ref.key(p, g.dv, g.dcache_v, ref.value_size);
      for (int64_t d = 0; d < ref.value_size; ++d) dv[d] += prob * kept * dy[d];
      const double dlogit = prob * (dprob(p) - mean);
      if (ref.reached(p, g.dbias, 1)) ref.bias(p, g.dbias) += dlogit;
      for (int64_t d = 0; d < ref.size; ++d) {
        const double ds = in.scale * dlogit;
        const double query = ref.query(p, in.q)[d];
        const double key = ref.key(p, in.k, in.cache_k, ref.size)[d];
        ref.query(p, g.dq)[d] += ds * key;
        ref.key(p, g.dk, g.dcache_k, ref.size)[d] += ds * (query + (in.u.defined() ? ref.of_head(p, in.u)[d] : 0));
        if (g.du.defined()) ref.of_head(p, g.du)[d] += ds * key;
        if (!ref.reached(p, in.r, 0)) continue;
        ref.query(p, g.dq)[d] += ds * ref.term(p, in.r)[d];
        ref.of_head(p, g.dv_bias)[d] += ds * ref.term(p, in.r)[d];
        ref.term(p, g.dr)[d] += ds * (query + ref.of_head(p, in.v_bias)[d]);
      }
    });
  });
  return g;
}

Tensor attention_delta_reference(const Tensor& dout, const Tensor& out) {
  const int64_t queries = out.dim(1);
  const int64_t heads = out.dim(2);
  const Tensor delta = Tensor::zeros({out.dim(0), heads, queries}, DType::f64);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t query = i / out.dim(3) / heads;
    const int64_t head = i / out.dim(3) % heads;
    delta.data<double>()[(query / queries * heads + head) * queries + query % queries] +=
        dout.data<double>()[i] * out.data<double>()[i];
  }
  return delta;
}

}  // namespace quire::test
