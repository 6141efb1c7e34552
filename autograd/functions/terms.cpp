#include "autograd/functions/terms.h"

#include "core/check.h"
#include "kernels/axis.h"
#include "kernels/elementwise.h"

namespace quire {

Tensor dense(const Tensor& x) {
  if (!x.defined() || x.is_contiguous()) return x;
  const Tensor copy = Tensor::empty(x.shape(), x.dtype(), x.device());
  ops::copy(copy, x);
  return copy;
}

Tensor as_type(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = Tensor::empty(x.shape(), dtype, x.device());
  ops::convert(y, x);
  return y;
}

int axis_of(const char* op, const Shape& shape, int axis) {
  const int rank = shape.rank();
  QUIRE_CHECK(axis >= -rank && axis < rank, "{}: axis {} of {}", op, axis, shape.to_string());
  return axis < 0 ? axis + rank : axis;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  Shape shape = longer;
  for (int i = 1; i <= shape.rank(); ++i) {
    const int64_t of_a = i <= a.rank() ? a[-i] : 1;
    const int64_t of_b = i <= b.rank() ? b[-i] : 1;
    QUIRE_CHECK(of_a == of_b || of_a == 1 || of_b == 1, "{}: {} and {} do not fit each other", op, a.to_string(),
                b.to_string());
    shape[-i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

void add_to_gradient(const Variable& x, const Tensor& term) {
  if (!x.needs_gradient()) return;
  const Shape& full = term.shape();
  const int added = full.rank() - x.shape().rank();
  Tensor sum = term;
  int64_t inner = 1;  // elements behind the axes that are still to be processed
  for (int end = full.rank(); end > 0;) {
    // Finds the longest run of axes up to `end` that are all repeated, or all not.
    const auto is_repeated = [&](int axis) {
      return axis < added || (x.shape()[axis - added] == 1 && full[axis] != 1);
    };
    int begin = end - 1;
    int64_t size = full[begin];
    while (begin > 0 && is_repeated(begin - 1) == is_repeated(end - 1)) size *= full[--begin];
    if (is_repeated(end - 1)) {
      const int64_t outer = size * inner == 0 ? 0 : sum.numel() / (size * inner);
      const Tensor less = Tensor::empty({outer, inner}, sum.dtype(), sum.device());
      if (sum.numel() == 0) {
        less.zero();
      } else {
        ops::sum_axis(less, sum.reshape({outer, size, inner}), 1, 1);
      }
      sum = less;
    } else {
      inner *= size;
    }
    end = begin;
  }
  if (sum.numel() != x.shape().numel()) {  // nothing was repeated into nothing
    sum = Tensor::zeros(x.shape(), sum.dtype(), sum.device());
  }
  x.gradient()->add(as_type(sum, x.gradient()->dtype()));
}

}  // namespace quire
