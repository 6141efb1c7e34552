// The table of op cases. A case describes one call of an operation once: its inputs, how to call it and what should
// come out. Every check of kernels (precision, threads, other devices) runs over this table.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace quire::test {

struct OpCase {
  using Run = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

  std::string op;       // the slot's name
  std::string variant;  // letters, digits and underscores
  // f64 tensors with values on the f32 grid, converted to the type under test; integers; or undefined.
  std::vector<Tensor> inputs;
  Run kernel;     // on inputs of one type, returns the outputs
  Run reference;  // slow and obvious, on f64
  // Terms of the longest sum behind one value of an output. 0: nothing is rounded, the result must be exact.
  int64_t sum_length = 1;
  // How much more rounding counts than in a sum: exp turns the absolute error of its argument into a relative one.
  double amplification = 1;
  // Inputs that stay f32 when the others are bf16: parameters' vectors, statistics, masters (wide_type).
  std::vector<size_t> wide = {};

  std::string name() const { return op + (variant.empty() ? "" : "_" + variant); }
  // Largest relative Frobenius error of an output. Rounding errors of a sum of n terms of like size are independent, so
  // they grow like sqrt(n) units in the last place beside a result that grows like sqrt(n) too or, with terms of one
  // sign, like n; sums that cancel (means, softmax gradients) lose a few units more. 8 units per term of the root cover
  // exp, tanh and division (1 to 4 units each), and nothing that is wrong by formula hides below 1e-5.
  double tolerance(DType dtype) const;
};

const std::vector<OpCase>& op_cases();

// The parts of the table.
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_activation_cases(std::vector<OpCase>& cases);
void add_reduction_cases(std::vector<OpCase>& cases);
void add_norm_cases(std::vector<OpCase>& cases);
void add_lookup_cases(std::vector<OpCase>& cases);
void add_optimizer_cases(std::vector<OpCase>& cases);
void add_ring_cases(std::vector<OpCase>& cases);
void add_rotary_cases(std::vector<OpCase>& cases);
void add_attention_cases(std::vector<OpCase>& cases);
void add_knn_cases(std::vector<OpCase>& cases);
void add_knn_gate_cases(std::vector<OpCase>& cases);
void add_vq_attention_cases(std::vector<OpCase>& cases);
void add_vq_codebook_cases(std::vector<OpCase>& cases);

// Copies of the inputs for one call: many operations write in place.
std::vector<Tensor> inputs_of(const OpCase& op_case, DType dtype, Device device = kCpu);
// bf16 inputs are no longer those the case was made with: the same values in f64, for the reference.
std::vector<Tensor> rounded_inputs_of(const OpCase& op_case, DType dtype);

// For kernels and references alike: zeros on the device and of the type of a tensor, or of what goes with that type.
Tensor like(const Tensor& tensor);
Tensor beside(const Tensor& tensor, const Shape& shape);
Tensor wide_beside(const Tensor& tensor, const Shape& shape);
// The same values as another type, integers too, on the same device.
Tensor recast(const Tensor& tensor, DType dtype);
// In f64 on the host and comparable: a NaN that both have is no difference.
Tensor shown(const Tensor& tensor);
// Scalars that are f64 beside any type.
Tensor f64_beside(const Tensor& tensor, const std::vector<double>& values);
inline double* values(const Tensor& tensor) {
  return tensor.data<double>();
}

}  // namespace quire::test
