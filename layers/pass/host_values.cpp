#include "layers/pass/host_values.h"

#include "core/check.h"
#include "kernels/elementwise.h"

namespace quire {

Tensor tensor_of(const std::vector<double>& values, const Shape& shape, DType dtype, Device device) {
  QUIRE_CHECK(dtype == DType::f64 || dtype == DType::f32, "tensor_of: {}", name_of(dtype));
  if (dtype == DType::f64) return Tensor::from(values, shape, device);
  return Tensor::from(std::vector<float>(values.begin(), values.end()), shape, device);
}

std::vector<double> values_on_host(const Tensor& tensor) {
  if (tensor.device().kind == DeviceKind::meta) return std::vector<double>(static_cast<size_t>(tensor.numel()), 0.0);
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  const Tensor wide = Tensor::empty(tensor.shape(), DType::f64, tensor.device());
  ops::convert(wide, tensor);
  return wide.to_vector<double>();
}

}  // namespace quire
