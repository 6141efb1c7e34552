#include "autograd/functions/axis.h"

#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/axis.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace quire {

namespace {

// Returns the shape with the axis of size 1, or without it.
Shape reduced(const Shape& shape, int axis, bool keep) {
  if (keep) {
    Shape one = shape;
    one[axis] = 1;
    return one;
  }
  std::vector<int64_t> sizes;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) sizes.push_back(shape[i]);
  }
  return Shape(std::span<const int64_t>(sizes));
}

Variable scaled_sum(Tape& tape, const char* name, const Variable& x, int axis, bool keep, double factor) {
  const Tensor y = Tensor::empty(reduced(x.shape(), axis, keep), x.value().dtype(), x.value().device());
  ops::sum_axis(y, x.value(), axis, factor);
  return tape.result(name, y, {&x}, [x, axis, factor](const Tensor& dout) {
    const Tensor term = dense(dout.reshape(reduced(x.shape(), axis, true)).broadcast(x.shape()));
    if (factor == 1) return add_to_gradient(x, term);
    const Tensor scaled = Tensor::empty_like(term);
    ops::scale(scaled, term, factor);
    add_to_gradient(x, scaled);
  });
}

Tensor mask_of(const Variable& x, const Tensor& mask) {
  return mask.defined() ? mask.broadcast(x.shape()) : mask;
}

}  // namespace

Variable sum(Tape& tape, const Variable& x, int axis, bool keep) {
  return scaled_sum(tape, "sum", x, axis_of("sum", x.shape(), axis), keep, 1);
}

Variable mean(Tape& tape, const Variable& x, int axis, bool keep) {
  const int along = axis_of("mean", x.shape(), axis);
  QUIRE_CHECK(x.dim(along) > 0, "mean: axis {} of {} is empty", axis, x.shape().to_string());
  return scaled_sum(tape, "mean", x, along, keep, 1 / static_cast<double>(x.dim(along)));
}

Variable total(Tape& tape, const Variable& x) {
  const Tensor y = Tensor::empty({1}, DType::f64, x.value().device());
  ops::sum_all(y, x.value());
  return tape.result("total", y, {&x}, [x](const Tensor& dout) {
    add_to_gradient(x, dense(as_type(dout, x.value().dtype()).reshape({}).broadcast(x.shape())));
  });
}

Variable cumulative_sum(Tape& tape, const Variable& x, int axis) {
  const int along = axis_of("cumulative_sum", x.shape(), axis);
  const Tensor y = Tensor::empty_like(x.value());
  ops::cumulative_sum(y, x.value(), along, false);
  return tape.result("cumulative_sum", y, {&x}, [x, along](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(dout);
    ops::cumulative_sum(term, dout, along, true);
    add_to_gradient(x, term);
  });
}

Variable softmax(Tape& tape, const Variable& x, const Tensor& mask) {
  const Tensor y = Tensor::empty_like(x.value());
  ops::softmax(y, Tensor(), x.value(), mask_of(x, mask));
  return tape.result("softmax", y, {&x}, [x, y](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(dout);
    ops::softmax_backward(term, dout, Tensor(), y);
    add_to_gradient(x, term);
  });
}

Variable log_sum_exp(Tape& tape, const Variable& x, const Tensor& mask) {
  const DType wide = wide_type(x.value().dtype());
  const Tensor y = Tensor::empty(reduced(x.shape(), x.shape().rank() - 1, false), wide, x.value().device());
  const Tensor probabilities = tape.wants_gradient({&x}) ? Tensor::empty_like(x.value()) : Tensor();
  ops::softmax(probabilities, y, x.value(), mask_of(x, mask));
  return tape.result("log_sum_exp", y, {&x}, [x, probabilities](const Tensor& dout) {
    const Tensor term = Tensor::empty_like(probabilities);
    ops::softmax_backward(term, Tensor(), dout, probabilities);
    add_to_gradient(x, term);
  });
}

}  // namespace quire
