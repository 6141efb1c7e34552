#include "autograd/functions/norm.h"

#include "kernels/norm.h"

namespace quire {

namespace {

Tensor per_row(const Tensor& x) {
  return Tensor::empty({x.numel() / x.dim(-1)}, wide_type(x.dtype()), x.device());
}

// Returns the tensor for a gradient that accumulates; scratch when the weight is constant.
Tensor accumulated(const std::shared_ptr<Gradient>& gradient, const Tensor& weight) {
  if (!gradient) {
    const Tensor unused = Tensor::empty_like(weight);
    unused.zero();
    return unused;
  }
  const auto [tensor, accumulate] = gradient->target();
  if (!accumulate) tensor.zero();
  return tensor;
}

}  // namespace

Variable rms_norm(Tape& tape, const Variable& x, const Variable& weight, double eps) {
  const Tensor y = Tensor::empty_like(x.value());
  const Tensor rstd = per_row(x.value());
  ops::rms_norm(y, rstd, x.value(), weight.value(), eps);
  return tape.result(
      "rms_norm", y, {&x, &weight},
      [in = x.value(), dx = x.gradient(), w = weight.value(), dw = weight.gradient(), rstd](const Tensor& dout) {
        const Gradient::Target to = dx ? dx->target() : Gradient::Target{Tensor::empty_like(in), false};
        ops::rms_norm_backward(to.tensor, accumulated(dw, w), dout, in, w, rstd, to.accumulate);
      });
}

Variable layer_norm(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  const Tensor y = Tensor::empty_like(x.value());
  const Tensor mean = per_row(x.value());
  const Tensor rstd = per_row(x.value());
  ops::layer_norm(y, mean, rstd, x.value(), weight.value(), bias.value(), eps);
  return tape.result("layer_norm", y, {&x, &weight, &bias},
                     [in = x.value(), dx = x.gradient(), w = weight.value(), dw = weight.gradient(),
                      db = bias.gradient(), mean, rstd](const Tensor& dout) {
                       const Gradient::Target to = dx ? dx->target() : Gradient::Target{Tensor::empty_like(in), false};
                       ops::layer_norm_backward(to.tensor, accumulated(dw, w), accumulated(db, w), dout, in, w, mean,
                                                rstd, to.accumulate);
                     });
}

Variable l2_normalize(Tape& tape, const Variable& x, double eps) {
  const Tensor y = Tensor::empty_like(x.value());
  const Tensor rnorm = per_row(x.value());
  ops::l2_norm(y, rnorm, x.value(), eps);
  return tape.result("l2_normalize", y, {&x}, [y, dx = x.gradient(), rnorm](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(dout);
    ops::l2_norm_backward(term, dout, y, rnorm);
    dx->add(term);
  });
}

Variable activation(Tape& tape, const Variable& x, ops::Activation kind) {
  const Tensor y = Tensor::empty_like(x.value());
  ops::activation(y, x.value(), kind);
  return tape.result("activation", y, {&x}, [in = x.value(), dx = x.gradient(), kind](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(dout);
    ops::activation_backward(term, dout, in, kind);
    dx->add(term);
  });
}

Variable swiglu(Tape& tape, const Variable& gate, const Variable& up) {
  const Tensor y = Tensor::empty_like(gate.value());
  ops::swiglu(y, gate.value(), up.value());
  return tape.result("swiglu", y, {&gate, &up}, [gate, up](const Tensor& dout) {
    const Tensor dgate = Tensor::empty_like(dout);
    const Tensor dup = Tensor::empty_like(dout);
    ops::swiglu_backward(dgate, dup, dout, gate.value(), up.value());
    if (gate.needs_gradient()) gate.gradient()->add(dgate);
    if (up.needs_gradient()) up.gradient()->add(dup);
  });
}

}  // namespace quire
