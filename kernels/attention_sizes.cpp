#include "kernels/attention_sizes.h"

#include <limits>

#include "core/check.h"

namespace quire {

namespace {

// Checks a tensor; undefined ones pass.
void require(const char* name, const Tensor& tensor, const Shape& shape, DType dtype) {
  if (!tensor.defined()) return;
  QUIRE_CHECK(tensor.shape() == shape && tensor.dtype() == dtype && tensor.is_contiguous(),
              "attention: {} is {} {}; it must be {} {} and contiguous", name, tensor.shape().to_string(),
              name_of(tensor.dtype()), shape.to_string(), name_of(dtype));
}

}  // namespace

AttentionSizes::AttentionSizes(const ops::AttentionInputs& in)
    : rows(in.q.dim(0)),
      queries(in.q.dim(1)),
      heads(in.q.dim(2)),
      kv_heads(in.k.dim(2)),
      size(in.q.dim(3)),
      value_size(in.v.dim(3)),
      slots(in.cache_k.defined() ? in.cache_k.dim(1) : 0),
      entries(in.r.defined() ? in.r.dim(0) : (in.bias.defined() ? in.bias.dim(1) : 0)),
      first_distance(in.last_visible.defined() ? queries : 0),
      distances(first_distance + slots + queries) {
  const DType type = in.q.dtype();
  const DType wide = wide_type(type);
  QUIRE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention: {} query heads are no multiple of {} key heads", heads,
              kv_heads);
  // Positions and distances are 32-bit numbers.
  QUIRE_CHECK(queries + slots <= std::numeric_limits<int32_t>::max() / 2, "attention: {} queries on {} carried keys",
              queries, slots);
  require("q", in.q, {rows, queries, heads, size}, type);
  require("k", in.k, {rows, queries, kv_heads, size}, type);
  require("v", in.v, {rows, queries, kv_heads, value_size}, type);
  require("first_visible", in.first_visible, {rows, queries}, DType::i32);
  require("last_visible", in.last_visible, {rows, queries}, DType::i32);
  QUIRE_CHECK(!in.last_visible.defined() || (in.attend_self && entries == 0),
              "attention: last_visible goes with attend_self and without bias and r, whose distances are not negative");
  if (slots > 0) {
    QUIRE_CHECK(in.cache_v.defined() && in.cache_head.defined(), "attention: a ring needs keys, values and its head");
    require("cache_k", in.cache_k, {rows, slots, kv_heads, size}, type);
    require("cache_v", in.cache_v, {rows, slots, kv_heads, value_size}, type);
    require("cache_head", in.cache_head, {rows}, DType::i32);
  }
  QUIRE_CHECK(!in.r.defined() || (in.u.defined() && in.v_bias.defined()), "attention: r needs u and v_bias");
  require("r", in.r, {entries, heads, size}, type);
  require("u", in.u, {heads, size}, wide);
  require("v_bias", in.v_bias, {heads, size}, wide);
  require("bias", in.bias, {heads, entries}, wide);
}

void check_attention(const AttentionSizes& s, const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  require("out", out, {s.rows, s.queries, s.heads, s.value_size}, in.q.dtype());
  require("lse", lse, {s.rows, s.heads, s.queries}, wide_type(in.q.dtype()));
}

void check_attention_backward(const AttentionSizes& s, const ops::AttentionGradients& g, const Tensor& dout,
                              const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  check_attention(s, out, lse, in);
  const DType type = in.q.dtype();
  const DType wide = wide_type(type);
  require("dout", dout, out.shape(), type);
  require("dq", g.dq, in.q.shape(), type);
  require("dk", g.dk, in.k.shape(), type);
  require("dv", g.dv, in.v.shape(), type);
  require("dcache_k", g.dcache_k, {s.rows, s.slots, s.kv_heads, s.size}, type);
  require("dcache_v", g.dcache_v, {s.rows, s.slots, s.kv_heads, s.value_size}, type);
  // An input that is not given must have no gradient.
  const auto belongs = [](const Tensor& gradient, const Tensor& input) {
    return !gradient.defined() || input.defined();
  };
  QUIRE_CHECK(belongs(g.dbias, in.bias) && belongs(g.dr, in.r) && belongs(g.du, in.u) && belongs(g.dv_bias, in.r),
              "attention: a gradient of a position term that is not given");
  require("dbias", g.dbias, {s.heads, s.entries}, wide);
  require("dr", g.dr, {s.entries, s.heads, s.size}, type);
  require("du", g.du, {s.heads, s.size}, wide);
  require("dv_bias", g.dv_bias, {s.heads, s.size}, wide);
  require("delta", g.delta, lse.shape(), wide);
}

void check_attention_delta(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  QUIRE_CHECK(out.rank() == 4, "attention: {} is not [R, T, H, Dv]", out.shape().to_string());
  require("dout", dout, out.shape(), out.dtype());
  require("delta", delta, {out.dim(0), out.dim(2), out.dim(1)}, wide_type(out.dtype()));
}

void check_attention_gate_backward(const Tensor& dgate, const Tensor& dattended, const Tensor& delta,
                                   const Tensor& dout, const Tensor& gate, const Tensor& attended) {
  check_attention_delta(delta, dattended, attended);
  for (const Tensor* tensor : {&dgate, &dout, &gate}) require("a gate", *tensor, attended.shape(), attended.dtype());
}

}  // namespace quire
