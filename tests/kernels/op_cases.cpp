#include "tests/kernels/op_cases.h"

#include <cmath>

namespace quire::test {

double OpCase::tolerance(DType dtype) const {
  if (sum_length == 0) return 0;
  if (dtype == DType::f64) return 1e-12;  // far above the rounding of f64, far below any mistake
  return amplification * 0x1p-24 * 8 * (2 + std::sqrt(static_cast<double>(sum_length)));
}

Tensor like(const Tensor& tensor) {
  return Tensor::zeros(tensor.shape(), tensor.dtype());
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
    return all;
  }();
  return cases;
}

}  // namespace quire::test
