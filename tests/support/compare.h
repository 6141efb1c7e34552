// How far two tensors are apart.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/random_tensor.h"

namespace quire::test {

inline std::vector<double> values_of(const Tensor& tensor) {
  return converted(tensor, DType::f64).to_vector<double>();
}

// ||a - b|| / ||b|| (Frobenius). When b is zero a must be zero too: then 0, otherwise infinity. Not-a-number and other
// shapes give infinity.
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
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

// A view with the values of a rank-2 tensor whose rows lie `gap` elements further apart than they need to.
inline Tensor with_row_gap(const Tensor& tensor, int64_t gap) {
  const Tensor wide = Tensor::zeros({tensor.dim(0), tensor.dim(1) + gap}, tensor.dtype());
  const auto row_bytes = static_cast<size_t>(tensor.dim(1)) * size_of(tensor.dtype());
  for (int64_t row = 0; row < tensor.dim(0); ++row) {
    std::memcpy(wide.select(0, row).raw(), tensor.select(0, row).raw(), row_bytes);
  }
  return wide.slice(1, 0, tensor.dim(1));
}

// Contiguous copy of a rank-2 view.
inline Tensor packed(const Tensor& view) {
  const Tensor copy = Tensor::zeros(view.shape(), view.dtype());
  const auto row_bytes = static_cast<size_t>(view.dim(1)) * size_of(view.dtype());
  for (int64_t row = 0; row < view.dim(0); ++row) {
    std::memcpy(copy.select(0, row).raw(), view.select(0, row).raw(), row_bytes);
  }
  return copy;
}

}  // namespace quire::test
