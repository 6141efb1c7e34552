#include "autograd/functions/listed_attention.h"

namespace quire {

BlockAttention listed_attention(Tape& tape, const Variable& q, const ListedVariables& x, ops::ListedAttentionInputs in,
                                Tensor* mass) {
  in.q = q.value();
  const auto take = [](Tensor& to, const Variable& from) {
    if (from.defined()) to = from.value();
  };
  take(in.keys, x.keys), take(in.values, x.values), take(in.weight, x.weight);
  take(in.own_keys, x.own_keys), take(in.own_values, x.own_values);
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.values.dim(3)};
  const Shape by_head{shape[0], shape[2], shape[1]}, by_entry{shape[0], shape[2], shape[1], in.blocks.dim(3)};
  const DType wide = wide_type(in.q.dtype());
  const bool weighted = in.weight.defined();
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty(weighted ? by_entry : by_head, wide, in.q.device());
  if (mass != nullptr) *mass = Tensor::empty(by_entry, wide, in.q.device());
  ops::listed_attention(y, lse, mass != nullptr ? *mass : Tensor(), in);
  const auto backward = [q, x, in, y, lse](const std::vector<Tensor>& d) {
    const auto empty_if = [](const Variable& of) {
      return of.needs_gradient() ? Tensor::empty_like(of.value()) : Tensor();
    };
    const ops::ListedAttentionGradients g{empty_if(q),        empty_if(x.keys),     empty_if(x.values),
                                          empty_if(x.weight), empty_if(x.own_keys), empty_if(x.own_values)};
    const Tensor dout = d[0].defined() ? d[0] : Tensor::zeros(y.shape(), y.dtype(), y.device());
    ops::listed_attention_backward(g, dout, d.size() > 1 ? d[1] : Tensor(), y, lse, in);
    const auto give = [](const Variable& to, const Tensor& gradient) {
      if (gradient.defined()) to.gradient()->add(gradient);
    };
    give(q, g.dq), give(x.keys, g.dkeys), give(x.values, g.dvalues), give(x.weight, g.dweight);
    give(x.own_keys, g.down_keys), give(x.own_values, g.down_values);
  };
  const std::vector<Variable> results =
      tape.results("listed_attention", weighted ? std::vector{y} : std::vector{y, lse},
                   {&q, &x.keys, &x.values, &x.own_keys, &x.own_values, &x.weight}, backward);
  return {results[0], weighted ? Variable() : results[1]};
}

}  // namespace quire
