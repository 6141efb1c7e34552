#include "autograd/functions/pointwise.h"

#include "autograd/functions/norm.h"
#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace quire {

namespace {

Variable binary(Tape& tape, const char* name, const Variable& a, const Variable& b, ops::Binary kind) {
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  const Tensor y = Tensor::empty(shape, a.value().dtype(), a.value().device());
  const Tensor left = a.value().broadcast(shape);
  const Tensor right = b.value().broadcast(shape);
  ops::binary(y, left, right, kind);
  // Sums and differences need no values in the backward pass, only shapes.
  const bool needs_values = kind != ops::Binary::sum && kind != ops::Binary::difference;
  const Tensor kept_a = needs_values ? left : Tensor();
  const Tensor kept_b = needs_values ? right : Tensor();
  return tape.result(name, y, {&a, &b}, [a, b, kept_a, kept_b, kind](const Tensor& dout) {
    if (!kept_a.defined()) {
      add_to_gradient(a, dout);
      if (!b.needs_gradient()) return;
      if (kind == ops::Binary::sum) return add_to_gradient(b, dout);
      const Tensor negative = Tensor::empty_like(dout);
      ops::scale(negative, dout, -1);
      return add_to_gradient(b, negative);
    }
    const Tensor da = a.needs_gradient() ? Tensor::empty_like(dout) : Tensor();
    const Tensor db = b.needs_gradient() ? Tensor::empty_like(dout) : Tensor();
    ops::binary_backward(da, db, dout, kept_a, kept_b, kind);
    add_to_gradient(a, da);
    add_to_gradient(b, db);
  });
}

Variable unary(Tape& tape, const char* name, const Variable& x, ops::Unary kind) {
  const Tensor y = Tensor::empty_like(x.value());
  ops::unary(y, x.value(), kind);
  return tape.result(name, y, {&x}, [x, y, kind](const Tensor& dout) {
    const Tensor dx = Tensor::empty_like(dout);
    ops::unary_backward(dx, dout, x.value(), y, kind);
    add_to_gradient(x, dx);
  });
}

}  // namespace

Variable add(Tape& tape, const Variable& a, const Variable& b) {
  if (!(a.shape() == b.shape())) return binary(tape, "add", a, b, ops::Binary::sum);
  const Tensor sum = Tensor::empty_like(a.value());
  ops::add(sum, a.value(), b.value(), 1, 1);
  return tape.result("add", sum, {&a, &b}, [da = a.gradient(), db = b.gradient()](const Tensor& dout) {
    if (da) da->add(dout);
    if (db) db->add(dout);
  });
}

Variable subtract(Tape& tape, const Variable& a, const Variable& b) {
  return binary(tape, "subtract", a, b, ops::Binary::difference);
}

Variable multiply(Tape& tape, const Variable& a, const Variable& b) {
  if (!(a.shape() == b.shape())) return binary(tape, "multiply", a, b, ops::Binary::product);
  const Tensor product = Tensor::empty_like(a.value());
  ops::multiply(product, a.value(), b.value());
  return tape.result("multiply", product, {&a, &b}, [a, b](const Tensor& dout) {
    for (const auto& [to, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      if (!to->needs_gradient()) continue;
      const Tensor term = Tensor::empty_like(dout);
      ops::multiply(term, dout, other->value());
      to->gradient()->add(term);
    }
  });
}

Variable divide(Tape& tape, const Variable& a, const Variable& b) {
  return binary(tape, "divide", a, b, ops::Binary::quotient);
}

Variable maximum(Tape& tape, const Variable& a, const Variable& b) {
  return binary(tape, "maximum", a, b, ops::Binary::maximum);
}

Variable exp(Tape& tape, const Variable& x) {
  return unary(tape, "exp", x, ops::Unary::exp);
}

Variable log(Tape& tape, const Variable& x) {
  return unary(tape, "log", x, ops::Unary::log);
}

Variable square_root(Tape& tape, const Variable& x) {
  return unary(tape, "square_root", x, ops::Unary::square_root);
}

Variable sigmoid(Tape& tape, const Variable& x) {
  return unary(tape, "sigmoid", x, ops::Unary::sigmoid);
}

Variable tanh(Tape& tape, const Variable& x) {
  return unary(tape, "tanh", x, ops::Unary::tanh);
}

Variable silu(Tape& tape, const Variable& x) {
  return activation(tape, x, ops::Activation::silu);
}

Variable select(Tape& tape, const Tensor& mask, const Variable& a, const Variable& b) {
  QUIRE_CHECK(a.defined() || b.defined(), "select: both operands are undefined");
  const Tensor& one = a.defined() ? a.value() : b.value();
  Shape shape = mask.shape();
  for (const Variable* x : {&a, &b}) {
    if (x->defined()) shape = broadcast_shape("select", shape, x->shape());
  }
  const auto view = [&](const Variable& x) { return x.defined() ? x.value().broadcast(shape) : Tensor(); };
  const Tensor y = Tensor::empty(shape, one.dtype(), one.device());
  const Tensor chosen = mask.broadcast(shape);
  ops::select(y, chosen, view(a), view(b));
  return tape.result("select", y, {&a, &b}, [a, b, chosen](const Tensor& dout) {
    for (const Variable* x : {&a, &b}) {
      if (!x->needs_gradient()) continue;
      const Tensor term = Tensor::empty_like(dout);
      ops::select(term, chosen, x == &a ? dout : Tensor(), x == &a ? Tensor() : dout);
      add_to_gradient(*x, term);
    }
  });
}

Variable convert(Tape& tape, const Variable& x, DType dtype) {
  if (x.value().dtype() == dtype) return x;
  return tape.result("convert", as_type(x.value(), dtype), {&x}, [x](const Tensor& dout) { add_to_gradient(x, dout); });
}

}  // namespace quire
