#include "autograd/functions/knn.h"

namespace quire {

namespace {

Tensor empty_lse(const Tensor& q) {
  return Tensor::empty({q.dim(0), q.dim(2), q.dim(1)}, wide_type(q.dtype()), q.device());
}

void add_knn_gradient(const Variable& q, const Tensor& dout, const Tensor& out, const Tensor& lse,
                      const ops::KnnAttentionInputs& in) {
  if (!q.needs_gradient()) return;
  const auto [to, accumulate] = q.gradient()->target();
  ops::knn_attention_backward(to, dout, out, lse, in, accumulate);
}

}  // namespace

Variable knn_attention(Tape& tape, const Variable& q, const Tensor& index, const ops::KnnMemory& memory, Tensor* lse) {
  const ops::KnnAttentionInputs in{q.value(), index, memory};
  const Tensor y = Tensor::empty({q.dim(0), q.dim(1), q.dim(2), memory.values.dim(3)}, in.q.dtype(), in.q.device());
  const Tensor log_sum = empty_lse(in.q);
  ops::knn_attention(y, log_sum, in, false);
  if (lse != nullptr) *lse = log_sum;
  return tape.result("knn_attention", y, {&q},
                     [q, in, y, log_sum](const Tensor& dout) { add_knn_gradient(q, dout, y, log_sum, in); });
}

Variable joint_attention(Tape& tape, const AttentionVariables& x, const ops::AttentionInputs& settings,
                         const Variable& q, const Tensor& index, const ops::KnnMemory& memory, Tensor* memory_share) {
  const ops::AttentionInputs local = attention_inputs(x, settings);
  const ops::KnnAttentionInputs retrieved{q.value(), index, memory};
  const Tensor y = Tensor::empty({local.q.dim(0), local.q.dim(1), local.q.dim(2), local.v.dim(3)}, local.q.dtype(),
                                 local.q.device());
  const Tensor lse = empty_lse(local.q);
  ops::attention(y, lse, local);
  Tensor local_lse;
  if (memory_share != nullptr) {
    local_lse = Tensor::empty_like(lse);
    local_lse.copy_from(lse);
  }
  ops::knn_attention(y, lse, retrieved, true);
  if (memory_share != nullptr) {
    *memory_share = Tensor::empty_like(lse);
    ops::softmax_share(*memory_share, local_lse, lse);
  }
  // With the result and the log-sum-exp of the whole softmax, each backward pass gives the gradient of its own logits.
  return tape.result("joint_attention", y,
                     {&q, &x.q, &x.k, &x.v, &x.cache_k, &x.cache_v, &x.bias, &x.r, &x.u, &x.v_bias},
                     [x, q, local, retrieved, y, lse](const Tensor& dout) {
                       add_attention_gradients(x, dout, y, lse, local);
                       add_knn_gradient(q, dout, y, lse, retrieved);
                     });
}

Variable gate_heads(Tape& tape, const Variable& a, const Variable& b, const Variable& bias, const Variable& content,
                    const Tensor& open) {
  const Tensor y = Tensor::empty_like(a.value());
  ops::gate_heads(y, a.value(), b.value(), bias.value(), content.value(), open);
  return tape.result("gate_heads", y, {&a, &b, &bias, &content}, [a, b, bias, content, open](const Tensor& dout) {
    const Tensor da = Tensor::empty_like(dout);
    const Tensor db = Tensor::empty_like(dout);
    const Tensor dcontent = content.defined() ? Tensor::empty_like(content.value()) : Tensor();
    const Gradient::Target to =
        bias.needs_gradient() ? bias.gradient()->target() : Gradient::Target{Tensor::empty_like(bias.value()), false};
    if (!to.accumulate) to.tensor.zero();
    ops::gate_heads_backward(da, db, to.tensor, dcontent, dout, a.value(), b.value(), bias.value(), content.value(),
                             open);
    if (a.needs_gradient()) a.gradient()->add(da);
    if (b.needs_gradient()) b.gradient()->add(db);
    if (content.needs_gradient()) content.gradient()->add(dcontent);
  });
}

}  // namespace quire
