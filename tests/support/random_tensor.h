// Tensors of reproducible random numbers. All values lie on the f32 grid, so that f32 and f64 runs of a test start from
// the same numbers.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "core/bfloat16.h"
#include "core/random.h"
#include "core/tensor.h"

namespace quire::test {

// Returns the same values in another floating type, on the same device.
inline Tensor converted(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() == dtype || !is_floating(tensor.dtype())) return tensor;
  std::vector<double> values;
  if (tensor.dtype() == DType::bf16) {
    for (const bfloat16 value : tensor.to_vector<bfloat16>()) values.push_back(static_cast<float>(value));
  } else if (tensor.dtype() == DType::f32) {
    for (const float value : tensor.to_vector<float>()) values.push_back(value);
  } else {
    values = tensor.to_vector<double>();
  }
  const Shape& shape = tensor.shape();
  const Device device = tensor.device();
  if (dtype == DType::f64) return Tensor::from(values, shape, device);
  if (dtype == DType::f32) return Tensor::from(std::vector<float>(values.begin(), values.end()), shape, device);
  std::vector<bfloat16> rounded;
  for (const double value : values) rounded.push_back(bfloat16(static_cast<float>(value)));
  return Tensor::from(rounded, shape, device);
}

inline Tensor clone(const Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const Tensor copy = Tensor::empty_like(tensor);
  copy.copy_from(tensor);
  return copy;
}

// A copy on another device.
inline Tensor on_device(const Tensor& tensor, Device device) {
  return tensor.defined() && tensor.device() == device ? clone(tensor) : tensor.to(device);
}

// A stream of numbers: tensors drawn in the same order have the same values in every run.
class RandomTensors {
 public:
  explicit RandomTensors(uint32_t seed) : key_{seed, 0} {}

  Tensor normal(const Shape& shape, double std = 1, double mean = 0, DType dtype = DType::f64) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& value : values) {
      const auto bits = draw();
      const double radius = std::sqrt(-2 * std::log((bits[0] + 1.0) * 0x1p-32));
      value = static_cast<float>(mean + std * radius * std::cos(2 * std::numbers::pi * bits[1] * 0x1p-32));
    }
    return converted(Tensor::from(values, shape), dtype);
  }
  int64_t below(int64_t limit) { return static_cast<int64_t>(draw()[0] % static_cast<uint64_t>(limit)); }
  // i32 values in [low, high).
  Tensor integers(const Shape& shape, int64_t low, int64_t high) {
    std::vector<int32_t> values(static_cast<size_t>(shape.numel()));
    for (int32_t& value : values) value = static_cast<int32_t>(low + below(high - low));
    return Tensor::from(values, shape);
  }
  // u8 flags, about three of four set.
  Tensor flags(const Shape& shape) {
    std::vector<uint8_t> values(static_cast<size_t>(shape.numel()));
    for (uint8_t& value : values) value = below(4) != 0 ? 1 : 0;
    return Tensor::from(values, shape);
  }

 private:
  std::array<uint32_t, 4> draw() { return philox(key_, hash_scope("test"), 0, 0, count_++); }

  RandomKey key_;
  uint32_t count_ = 0;
};

}  // namespace quire::test
