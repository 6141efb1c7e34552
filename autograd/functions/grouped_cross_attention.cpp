#include "autograd/functions/grouped_cross_attention.h"

namespace quire {

Variable grouped_cross_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                                 const Variable& weight, ops::GroupedCrossAttentionInputs in) {
  in.q = q.value();
  in.keys = keys.value();
  in.values = values.value();
  in.weight = weight.value();
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.values.dim(3)};
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse =
      Tensor::empty({shape[0], shape[2], shape[1], in.chosen.dim(2)}, wide_type(in.q.dtype()), in.q.device());
  ops::grouped_cross_attention(y, lse, in);
  return tape.result(
      "grouped_cross_attention", y, {&q, &keys, &values, &weight},
      [q, keys, values, weight, in, lse](const Tensor& dout) {
        const auto empty_if = [](const Variable& x) {
          return x.needs_gradient() ? Tensor::empty_like(x.value()) : Tensor();
        };
        const auto give = [](const Variable& x, const Tensor& gradient) {
          if (gradient.defined()) x.gradient()->add(gradient);
        };
        const ops::GroupedCrossAttentionGradients g{empty_if(q), empty_if(keys), empty_if(values), empty_if(weight)};
        ops::grouped_cross_attention_backward(g, dout, lse, in);
        give(q, g.dq);
        give(keys, g.dkeys);
        give(values, g.dvalues);
        give(weight, g.dweight);
      });
}

}  // namespace quire
