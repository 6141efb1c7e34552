// The table of operations. A case describes one call once: its inputs, how to call it and what should come out. Every
// check runs over this table: against the reference, in every precision, on any number of threads, on CUDA, numeric
// gradients, and the timing of tests/kernels/bench_ops.cpp.
//
// A case calls either an operation of kernels/ (`kernel`) or a differentiable function of autograd/functions
// (`function`). Functions are swept backwards too, so that their gradients go through the same checks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

using Tensors = std::vector<Tensor>;
using Inputs = std::vector<Variable>;

struct OpCase {
  using Run = std::function<Tensors(const Tensors& inputs)>;
  using Function = std::function<Inputs(Tape& tape, const Inputs& inputs)>;

  std::string op;       // the name of the operation or function
  std::string variant;  // letters, digits and underscores
  // f64 tensors with values on the f32 grid, converted to the type under test; integers; or undefined.
  Tensors inputs;
  Run kernel = {};     // on inputs of one type, returns the outputs
  Run reference = {};  // slow and obvious, on f64
  // Terms of the longest sum behind one value of an output. 0: nothing is rounded, the result must be exact.
  int64_t sum_length = 1;
  // A factor for rounding errors beyond those of a sum: exp turns the absolute error of its argument into a relative
  // one.
  double amplification = 1;
  // Inputs that stay f32 when the others are bf16: parameters' vectors, statistics, masters (wide_type).
  std::vector<size_t> wide = {};

  // A case of a differentiable function has this instead of a kernel.
  Function function = {};
  std::vector<size_t> constants = {};
  // The same function composed of others: outputs and gradients are compared with its own, in f64.
  Function composition = {};
  // The gradients of the leaves in f64, where they are by definition not the derivatives of the outputs.
  Run gradients = {};
  // False where the gradients of a composition are by definition not the derivatives either.
  bool has_derivative = true;
  // The CPU computes it in bf16, too.
  bool has_bf16_on_cpu = false;
  // The number of values stored on the way to a result that are rounded one after the other; it counts in bf16.
  double roundings = 3;

  std::string name() const { return op + (variant.empty() ? "" : "_" + variant); }
  // Largest relative Frobenius error of an output. Rounding errors of a sum of n terms of like size are independent, so
  // they grow like sqrt(n) units in the last place beside a result that grows like sqrt(n) too or, with terms of one
  // sign, like n; sums that cancel (means, softmax gradients) lose a few units more. 8 units per term of the root cover
  // exp, tanh and division (1 to 4 units each), and nothing that is wrong by formula hides below 1e-5.
  double tolerance(DType dtype) const;
};

const std::vector<OpCase>& op_cases();

// Add the parts of the table.
void add_vocabulary_cases(std::vector<OpCase>& cases);
void add_view_cases(std::vector<OpCase>& cases);
void add_row_cases(std::vector<OpCase>& cases);
void add_basic_function_cases(std::vector<OpCase>& cases);
void add_norm_function_cases(std::vector<OpCase>& cases);
void add_lookup_function_cases(std::vector<OpCase>& cases);
void add_attention_function_cases(std::vector<OpCase>& cases);
void add_block_cases(std::vector<OpCase>& cases);
void add_listed_cases(std::vector<OpCase>& cases);
void add_vq_function_cases(std::vector<OpCase>& cases);
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_activation_cases(std::vector<OpCase>& cases);
void add_reduction_cases(std::vector<OpCase>& cases);
void add_lookup_cases(std::vector<OpCase>& cases);
void add_cross_entropy_cases(std::vector<OpCase>& cases);
void add_muon_cases(std::vector<OpCase>& cases);
void add_optimizer_cases(std::vector<OpCase>& cases);
void add_ring_cases(std::vector<OpCase>& cases);
void add_rotary_cases(std::vector<OpCase>& cases);
void add_attention_cases(std::vector<OpCase>& cases);
void add_knn_cases(std::vector<OpCase>& cases);
void add_knn_gate_cases(std::vector<OpCase>& cases);
void add_vq_attention_cases(std::vector<OpCase>& cases);
void add_vq_codebook_cases(std::vector<OpCase>& cases);
void add_feed_forward_cases(std::vector<OpCase>& cases);
void add_delta_rule_cases(std::vector<OpCase>& cases);
void add_exact_gelu_cases(std::vector<OpCase>& cases);

// Copies of the inputs for one call: many operations write in place.
Tensors inputs_of(const OpCase& op_case, DType dtype, Device device = kCpu);
// The call in a type on a device: outputs and, of a function, gradients. With gradients of the outputs that are the
// same numbers in every call; 1 for one f64 value, which is a loss.
Tensors run(const OpCase& op_case, DType dtype, Device device = kCpu);
// The gradient of the first output in such a call.
Tensor first_seed(const Shape& shape);
// Returns the results that run(op_case, dtype) should give, in f64. bf16 inputs differ from those the case was made
// with.
Tensors expected_of(const OpCase& op_case, DType dtype);
// The inputs of a function that get a gradient.
std::vector<size_t> leaves_of(const OpCase& op_case);

// A case of a function with one output, or with several.
using OneOutput = std::function<Variable(Tape& tape, const Inputs& inputs)>;
OpCase function_case(std::string op, std::string variant, Tensors inputs, OneOutput function);
OpCase function_case(std::string op, std::string variant, Tensors inputs, OpCase::Function function);
OpCase::Function one_output(OneOutput function);
// Adds a function of one output with the composition that it is compared with.
OpCase& add_composed(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                     int64_t sum_length, OneOutput function, OneOutput composition, std::vector<size_t> wide = {});
// Adds a function of one output with its reference. The CPU computes it in bf16, too.
OpCase& add_referenced(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                       int64_t sum_length, OneOutput function, OpCase::Run reference);
// Adds an operation.
OpCase& add_operation(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                      int64_t sum_length, OpCase::Run kernel, OpCase::Run reference, std::vector<size_t> wide = {},
                      double amplification = 1);
// Adds an operation that writes inputs, those of `results`, as the reference does.
using Change = std::function<void(const Tensors& inputs)>;
OpCase& add_in_place(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                     int64_t sum_length, Change kernel, Change reference, std::vector<size_t> wide = {},
                     std::vector<size_t> results = {0});

// The sizes, for the name of a variant: 2x3.
std::string name_of(const Shape& shape);

// For kernels and references alike: zeros on the device and of the type of a tensor, or of what goes with that type.
Tensor like(const Tensor& tensor);
Tensor beside(const Tensor& tensor, const Shape& shape);
Tensor wide_beside(const Tensor& tensor, const Shape& shape);
// Returns the same values as another type, integers too, on the same device.
Tensor recast(const Tensor& tensor, DType dtype);
// Returns a tensor in f64 on the host for comparisons: a NaN that both have is no difference.
Tensor shown(const Tensor& tensor);
// Scalars that are f64 beside any type.
Tensor f64_beside(const Tensor& tensor, const std::vector<double>& values);
inline double* values(const Tensor& tensor) {
  return tensor.data<double>();
}
inline int32_t at(const Tensor& integers, int64_t i) {
  return integers.data<int32_t>()[i];
}
// Whole numbers in [low, high) in f64.
Tensor whole(RandomTensors& random, const Shape& shape, int64_t low, int64_t high);

}  // namespace quire::test
