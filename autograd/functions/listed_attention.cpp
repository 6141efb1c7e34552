#include "autograd/functions/listed_attention.h"

namespace quire {

BlockAttention listed_attention(Tape& tape, const Variable& q, ops::ListedAttentionInputs in, Tensor* mass) {
  in.q = q.value();
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.values.dim(3)};
  const DType wide = wide_type(in.q.dtype());
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty({shape[0], shape[2], shape[1]}, wide, in.q.device());
  if (mass != nullptr) *mass = Tensor::empty({shape[0], shape[2], shape[1], in.blocks.dim(3)}, wide, in.q.device());
  ops::listed_attention(y, lse, mass != nullptr ? *mass : Tensor(), in);
  const std::vector<Variable> results =
      tape.results("listed_attention", {y, lse}, {&q}, [q, in, y, lse](const std::vector<Tensor>& d) {
        const Tensor dq = Tensor::empty_like(in.q);
        const Tensor dout = d[0].defined() ? d[0] : Tensor::zeros(y.shape(), y.dtype(), y.device());
        ops::listed_attention_backward({dq, {}, {}, {}}, dout, d[1], y, lse, in);
        q.gradient()->add(dq);
      });
  return {results[0], results[1]};
}

Variable listed_attention(Tape& tape, const Variable& q, const Variable& keys, const Variable& values,
                          const Variable& weight, ops::ListedAttentionInputs in) {
  in.q = q.value();
  in.keys = keys.value();
  in.values = values.value();
  in.weight = weight.value();
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.values.dim(3)};
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse =
      Tensor::empty({shape[0], shape[2], shape[1], in.blocks.dim(3)}, wide_type(in.q.dtype()), in.q.device());
  ops::listed_attention(y, lse, {}, in);
  return tape.result(
      "listed_attention", y, {&q, &keys, &values, &weight}, [q, keys, values, weight, in, lse](const Tensor& dout) {
        const auto empty_if = [](const Variable& x) {
          return x.needs_gradient() ? Tensor::empty_like(x.value()) : Tensor();
        };
        const auto give = [](const Variable& x, const Tensor& gradient) {
          if (gradient.defined()) x.gradient()->add(gradient);
        };
        const ops::ListedAttentionGradients g{empty_if(q), empty_if(keys), empty_if(values), empty_if(weight)};
        ops::listed_attention_backward(g, dout, {}, {}, lse, in);
        give(q, g.dq);
        give(keys, g.dkeys);
        give(values, g.dvalues);
        give(weight, g.dweight);
      });
}

}  // namespace quire
