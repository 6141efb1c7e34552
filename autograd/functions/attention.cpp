#include "autograd/functions/attention.h"

#include "kernels/position.h"

namespace quire {

namespace {

Tensor empty_if(const Variable& x) {
  return x.needs_gradient() ? Tensor::empty_like(x.value()) : Tensor();
}

void give(const Variable& x, const Tensor& gradient) {
  if (x.needs_gradient()) x.gradient()->add(gradient);
}

}  // namespace

ops::AttentionInputs attention_inputs(const AttentionVariables& x, ops::AttentionInputs settings) {
  settings.q = x.q.value();
  settings.k = x.k.value();
  settings.v = x.v.value();
  settings.cache_k = x.cache_k.value();
  settings.cache_v = x.cache_v.value();
  settings.bias = x.bias.value();
  settings.r = x.r.value();
  settings.u = x.u.value();
  settings.v_bias = x.v_bias.value();
  return settings;
}

ops::AttentionGradients attention_gradients(const AttentionVariables& x) {
  ops::AttentionGradients g;
  g.dq = Tensor::empty_like(x.q.value());
  g.dk = empty_if(x.k);
  g.dv = empty_if(x.v);
  g.dcache_k = empty_if(x.cache_k);
  g.dcache_v = empty_if(x.cache_v);
  g.dbias = empty_if(x.bias);
  g.dr = empty_if(x.r);
  g.du = empty_if(x.u);
  g.dv_bias = empty_if(x.v_bias);
  return g;
}

void give_gradients(const AttentionVariables& x, const ops::AttentionGradients& g) {
  give(x.q, g.dq);
  give(x.k, g.dk);
  give(x.v, g.dv);
  give(x.cache_k, g.dcache_k);
  give(x.cache_v, g.dcache_v);
  give(x.bias, g.dbias);
  give(x.r, g.dr);
  give(x.u, g.du);
  give(x.v_bias, g.dv_bias);
}

void add_attention_gradients(const AttentionVariables& x, const Tensor& dout, const Tensor& out, const Tensor& lse,
                             const ops::AttentionInputs& in) {
  const ops::AttentionGradients gradients = attention_gradients(x);
  ops::attention_backward(gradients, dout, out, lse, in);
  give_gradients(x, gradients);
}

Variable attention(Tape& tape, const AttentionVariables& x, ops::AttentionInputs settings) {
  const ops::AttentionInputs in = attention_inputs(x, std::move(settings));
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)};
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty({shape[0], shape[2], shape[1]}, wide_type(in.q.dtype()), in.q.device());
  ops::attention(y, lse, in);
  return tape.result("attention", y, {&x.q, &x.k, &x.v, &x.cache_k, &x.cache_v, &x.bias, &x.r, &x.u, &x.v_bias},
                     [x, in, y, lse](const Tensor& dout) { add_attention_gradients(x, dout, y, lse, in); });
}

Variable gather_columns(Tape& tape, const Variable& table, const Tensor& index) {
  const Tensor y = Tensor::empty({table.dim(0), index.numel()}, table.value().dtype(), table.value().device());
  ops::gather_columns(y, table.value(), index);
  return tape.result("gather_columns", y, {&table}, [dtable = table.gradient(), index](const Tensor& dout) {
    const auto [to, accumulate] = dtable->target();
    if (!accumulate) to.zero();
    ops::gather_columns_backward(to, dout, index);
  });
}

}  // namespace quire
