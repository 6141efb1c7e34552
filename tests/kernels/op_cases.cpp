#include "tests/kernels/op_cases.h"

#include <algorithm>
#include <cmath>

#include "core/float8.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

double OpCase::tolerance(DType dtype) const {
  if (sum_length == 0) return 0;
  if (dtype == DType::f64) return 1e-12;  // far above the rounding of f64, far below any mistake
  // In bf16 sums are f32, and what is stored rounds by 2^-9: the result once, and a value or two on the way to it.
  const double stored = dtype == DType::bf16 ? 3 * 0x1p-9 : 0;
  return stored + amplification * 0x1p-24 * 8 * (2 + std::sqrt(static_cast<double>(sum_length)));
}

std::vector<Tensor> inputs_of(const OpCase& op_case, DType dtype, Device device) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const bool stays = std::find(op_case.wide.begin(), op_case.wide.end(), i) != op_case.wide.end();
    inputs.push_back(on_device(converted(op_case.inputs[i], stays ? wide_type(dtype) : dtype), device));
  }
  return inputs;
}

std::vector<Tensor> rounded_inputs_of(const OpCase& op_case, DType dtype) {
  std::vector<Tensor> inputs;
  for (const Tensor& input : inputs_of(op_case, dtype)) inputs.push_back(clone(converted(input, DType::f64)));
  return inputs;
}

Tensor like(const Tensor& tensor) {
  return beside(tensor, tensor.shape());
}

Tensor beside(const Tensor& tensor, const Shape& shape) {
  return Tensor::zeros(shape, tensor.dtype(), tensor.device());
}

Tensor wide_beside(const Tensor& tensor, const Shape& shape) {
  return Tensor::zeros(shape, wide_type(tensor.dtype()), tensor.device());
}

namespace {

template <typename T>
Tensor recast_from(const Tensor& tensor, DType dtype) {
  const std::vector<T> from = tensor.to_vector<T>();
  const auto with = [&](auto type) {
    using To = decltype(type);
    std::vector<To> to;
    for (const T value : from) {
      // bf16 through f32, both ways.
      constexpr bool kByFloat =
          std::is_same_v<T, bfloat16> || std::is_same_v<To, bfloat16> || std::is_same_v<T, float8>;
      if constexpr (kByFloat) {
        to.push_back(static_cast<To>(static_cast<float>(value)));
      } else {
        to.push_back(static_cast<To>(value));
      }
    }
    return Tensor::from(to, tensor.shape(), tensor.device());
  };
  switch (dtype) {
    case DType::f64:
      return with(double{});
    case DType::f32:
      return with(float{});
    case DType::bf16:
      return with(bfloat16{});
    case DType::i32:
      return with(int32_t{});
    case DType::f8:
      return with(float8{});
    default:
      return with(int8_t{});
  }
}

}  // namespace

Tensor recast(const Tensor& tensor, DType dtype) {
  if (!tensor.defined() || tensor.dtype() == dtype) return tensor;
  switch (tensor.dtype()) {
    case DType::f64:
      return recast_from<double>(tensor, dtype);
    case DType::f32:
      return recast_from<float>(tensor, dtype);
    case DType::bf16:
      return recast_from<bfloat16>(tensor, dtype);
    case DType::i32:
      return recast_from<int32_t>(tensor, dtype);
    case DType::f8:
      return recast_from<float8>(tensor, dtype);
    default:
      return recast_from<int8_t>(tensor, dtype);
  }
}

// No score of halves and no square: small, so that other differences stay large beside it.
constexpr double kShownNan = -1.0 / 3;

Tensor shown(const Tensor& tensor) {
  const Tensor copy = recast(on_device(tensor, kCpu), DType::f64);
  for (int64_t i = 0; i < copy.numel(); ++i)
    values(copy)[i] = std::isnan(values(copy)[i]) ? kShownNan : values(copy)[i];
  return copy;
}

Tensor f64_beside(const Tensor& tensor, const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, tensor.device());
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    std::vector<OpCase> all;
    add_elementwise_cases(all);
    add_activation_cases(all);
    add_reduction_cases(all);
    add_norm_cases(all);
    add_lookup_cases(all);
    add_optimizer_cases(all);
    add_ring_cases(all);
    add_rotary_cases(all);
    add_attention_cases(all);
    add_knn_cases(all);
    add_knn_gate_cases(all);
    add_vq_attention_cases(all);
    add_vq_codebook_cases(all);
    return all;
  }();
  return cases;
}

}  // namespace quire::test
