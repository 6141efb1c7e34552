#include "kernels/random_values.h"

#include <algorithm>
#include <vector>

#include "core/random.h"
#include "kernels/elementwise.h"

namespace quire {

Tensor random_values(const Shape& shape, DType dtype, Device device) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t first = 0; first < values.size(); first += 4) {
    const auto bits = philox({}, 0, 0, 0, static_cast<uint32_t>(first / 4));
    for (size_t i = first; i < std::min(first + 4, values.size()); ++i) {
      values[i] = uniform_from_bits(bits[i - first]) - 0.5F;
    }
  }
  const Tensor wide = Tensor::from(values, shape, device);
  if (dtype == DType::f32) return wide;
  const Tensor converted = Tensor::empty(shape, dtype, device);
  ops::convert(converted, wide);
  return converted;
}

}  // namespace quire
