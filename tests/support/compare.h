// Measures the difference of two tensors.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/elementwise.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

inline std::vector<double> values_of(const Tensor& tensor) {
  return converted(tensor, DType::f64).to_vector<double>();
}

// Returns
// a - b
// /
// b
// (Frobenius). When b is zero: 0 if a is zero too, otherwise infinity. NaN and different shapes give infinity.
inline double relative_error(const Tensor& a, const Tensor& b) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (!(a.shape() == b.shape())) return infinity;
  const std::vector<double> x = values_of(a);
  const std::vector<double> y = values_of(b);
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) {  // equal infinities too
      norm += std::isfinite(y[i]) ? y[i] * y[i] : 0;
      continue;
    }
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  if (difference == 0) return 0;
  const double error = std::sqrt(difference / norm);
  return std::isfinite(error) ? error : infinity;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = on_device(a, kCpu);
  const Tensor y = on_device(b, kCpu);
  return std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) == 0;
}

// Returns a view with the values of a rank-2 tensor whose rows have a gap of `gap` elements between them.
inline Tensor with_row_gap(const Tensor& tensor, int64_t gap) {
  const Tensor wide = Tensor::zeros({tensor.dim(0), tensor.dim(1) + gap}, tensor.dtype(), tensor.device());
  const Tensor view = wide.slice(1, 0, tensor.dim(1));
  ops::copy(view, tensor);
  return view;
}

// Returns a contiguous copy of a view.
inline Tensor packed(const Tensor& view) {
  const Tensor copy = Tensor::empty_like(view);
  ops::copy(copy, view);
  return copy;
}

}  // namespace quire::test
