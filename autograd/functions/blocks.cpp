#include "autograd/functions/blocks.h"

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/pointwise.h"
#include "autograd/functions/views.h"

namespace quire {

BlockAttention block_attention(Tape& tape, const Variable& q, const Variable& k, const Variable& v,
                               ops::BlockAttentionInputs in) {
  in.q = q.value();
  in.k = k.value();
  in.v = v.value();
  const Shape shape{in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)};
  const Tensor y = Tensor::empty(shape, in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty({shape[0], shape[2], shape[1]}, wide_type(in.q.dtype()), in.q.device());
  ops::block_attention(y, lse, in);
  const std::vector<Variable> results =
      tape.results("block_attention", {y, lse}, {&q, &k, &v}, [q, k, v, in, y, lse](const std::vector<Tensor>& d) {
        const auto empty_if = [](const Variable& x) {
          return x.needs_gradient() ? Tensor::empty_like(x.value()) : Tensor();
        };
        const auto give = [](const Variable& x, const Tensor& gradient) {
          if (x.needs_gradient()) x.gradient()->add(gradient);
        };
        const ops::BlockAttentionGradients g{Tensor::empty_like(in.q), empty_if(k), empty_if(v)};
        const Tensor dout = d[0].defined() ? d[0] : Tensor::zeros(y.shape(), y.dtype(), y.device());
        ops::block_attention_backward(g, dout, d[1], y, lse, in);
        give(q, g.dq);
        give(k, g.dk);
        give(v, g.dv);
      });
  return {results[0], results[1]};
}

BlockAttention join(Tape& tape, const BlockAttention& a, const BlockAttention& b) {
  const Shape& shape = a.out.shape();
  const Shape by_query{shape[0], shape[2], shape[1], 1};
  const std::vector<Variable> sums{reshape(tape, a.lse, by_query), reshape(tape, b.lse, by_query)};
  const Variable both = concatenate(tape, sums, 3);
  // A query without gates in both parts has out = 0 in both, so its equal shares of them give 0.
  const Variable shares = softmax(tape, permute(tape, both, {0, 2, 1, 3}));  // [R, T, H, 2]
  const auto part = [&](const BlockAttention& x, int64_t n) {
    return multiply(tape, x.out, convert(tape, slice(tape, shares, 3, n, n + 1), x.out.value().dtype()));
  };
  return {add(tape, part(a, 0), part(b, 1)), log_sum_exp(tape, both)};
}

ContextMiss context_miss(Tape& tape, const BlockAttention& a, const Variable& miss) {
  const Variable transposed = permute(tape, a.lse, {0, 2, 1});
  const Variable sums = reshape(tape, transposed, {transposed.dim(0), transposed.dim(1), transposed.dim(2), 1});
  const Variable logits = convert(tape, miss, sums.value().dtype());
  const auto share = [&](const Variable& x, const Variable& y) {
    return convert(tape, sigmoid(tape, subtract(tape, x, y)), a.out.value().dtype());
  };
  return {share(sums, logits), share(logits, sums)};
}

}  // namespace quire
