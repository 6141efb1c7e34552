#include "autograd/functions/views.h"

#include "autograd/functions/terms.h"
#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/pointwise.h"

namespace quire {

namespace {

// Adds a term to a part of a gradient and leaves the rest unchanged.
void add_to_slice(Gradient& gradient, int axis, int64_t begin, const Tensor& term) {
  const auto [to, accumulate] = gradient.target();
  if (!accumulate) to.zero();
  const Tensor part = to.slice(axis, begin, begin + term.dim(axis));
  ops::binary(part, part, as_type(term, to.dtype()), ops::Binary::sum);
}

}  // namespace

Variable reshape(Tape& tape, const Variable& x, const Shape& shape) {
  return tape.result("reshape", x.value().reshape(shape), {&x},
                     [dx = x.gradient()](const Tensor& dout) { dx->add(dout); });
}

Variable slice(Tape& tape, const Variable& x, int axis, int64_t begin, int64_t end) {
  const int along = axis_of("slice", x.shape(), axis);
  return tape.result("slice", dense(x.value().slice(along, begin, end)), {&x},
                     [dx = x.gradient(), along, begin](const Tensor& dout) { add_to_slice(*dx, along, begin, dout); });
}

Variable concatenate(Tape& tape, std::span<const Variable> parts, int axis) {
  QUIRE_CHECK(!parts.empty(), "concatenate: there is nothing to put together");
  const int along = axis_of("concatenate", parts.front().shape(), axis);
  Shape shape = parts.front().shape();
  std::vector<std::shared_ptr<Gradient>> gradients;
  for (const Variable& part : parts) {
    if (part.needs_gradient()) gradients.push_back(part.gradient());
    if (&part == &parts.front()) continue;
    Shape other = part.shape();
    shape[along] += other[along];
    other[along] = parts.front().dim(along);
    QUIRE_CHECK(other == parts.front().shape(), "concatenate: {} and {} along axis {}",
                parts.front().shape().to_string(), part.shape().to_string(), along);
  }
  const Tensor y = Tensor::empty(shape, parts.front().value().dtype(), parts.front().value().device());
  int64_t at = 0;
  for (const Variable& part : parts) {
    ops::copy(y.slice(along, at, at + part.dim(along)), part.value());
    at += part.dim(along);
  }
  const std::vector<Variable> inputs(parts.begin(), parts.end());
  const auto backward = [inputs, along](const std::vector<Tensor>& dout) {
    int64_t begin = 0;
    for (const Variable& part : inputs) {
      const int64_t end = begin + part.dim(along);
      if (part.needs_gradient()) add_to_gradient(part, dense(dout.front().slice(along, begin, end)));
      begin = end;
    }
  };
  return tape.results("concatenate", {y}, gradients, backward).front();
}

Variable permute(Tape& tape, const Variable& x, std::span<const int> axes) {
  std::vector<int> inverse(axes.size());
  const Tensor view = x.value().permute(axes);
  for (size_t i = 0; i < axes.size(); ++i) inverse[static_cast<size_t>(axes[i])] = static_cast<int>(i);
  return tape.result("permute", dense(view), {&x},
                     [x, inverse](const Tensor& dout) { add_to_gradient(x, dense(dout.permute(inverse))); });
}

Variable permute(Tape& tape, const Variable& x, std::initializer_list<int> axes) {
  return permute(tape, x, std::span<const int>(axes.begin(), axes.size()));
}

Variable broadcast(Tape& tape, const Variable& x, const Shape& shape) {
  return tape.result("broadcast", dense(x.value().broadcast(shape)), {&x},
                     [x](const Tensor& dout) { add_to_gradient(x, dout); });
}

}  // namespace quire
