#include "tests/kernels/op_cases.h"

#include <algorithm>
#include <cmath>

#include "core/float8.h"
#include "kernels/backend.h"

namespace quire::test {

double OpCase::tolerance(DType dtype) const {
  if (sum_length == 0) return 0;
  if (dtype == DType::f64) return 1e-12;  // far above the rounding of f64, far below any mistake
  // In bf16 sums are f32, and what is stored rounds by 2^-9: the result once, and a value or two on the way to it.
  const double stored = dtype == DType::bf16 ? roundings * 0x1p-9 : 0;
  return stored + amplification * 0x1p-24 * 8 * (2 + std::sqrt(static_cast<double>(sum_length)));
}

Tensors inputs_of(const OpCase& op_case, DType dtype, Device device) {
  Tensors inputs;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const bool stays = std::find(op_case.wide.begin(), op_case.wide.end(), i) != op_case.wide.end();
    inputs.push_back(on_device(converted(op_case.inputs[i], stays ? wide_type(dtype) : dtype), device));
  }
  return inputs;
}

namespace {

bool is_in(const std::vector<size_t>& list, size_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// On the bf16 grid, so that it is the same in every type.
Tensor seed_from(RandomTensors& random, const Shape& shape) {
  return converted(converted(random.normal(shape), DType::bf16), DType::f64);
}

// Outputs, then gradients of the leaves; undefined gradients are zeros.
Tensors run_function(const OpCase& op_case, const OpCase::Function& function, const Tensors& inputs) {
  const std::vector<size_t> leaves = leaves_of(op_case);
  Inputs variables;
  for (size_t i = 0; i < inputs.size(); ++i) {
    variables.push_back(is_in(leaves, i) ? Variable::leaf(inputs[i]) : Variable::constant(inputs[i]));
  }
  Tape tape;
  const Inputs outputs = function(tape, variables);
  Tensors results;
  Tensors seeds;
  RandomTensors random(99);
  for (const Variable& output : outputs) {
    results.push_back(clone(output.value()));
    const Tensor& value = output.value();
    const bool is_loss = value.dtype() == DType::f64 && value.shape() == Shape{1};
    const Tensor seed = is_loss ? Tensor::from(std::vector<double>{1}, {1}) : seed_from(random, value.shape());
    const bool differs = output.needs_gradient();
    seeds.push_back(differs ? on_device(converted(seed, value.dtype()), value.device()) : Tensor());
  }
  tape.backward(outputs, seeds);
  for (const size_t leaf : leaves) {
    const Gradient& gradient = *variables[leaf].gradient();
    results.push_back(gradient.has_value() ? gradient.value() : like(inputs[leaf]));
  }
  return results;
}

}  // namespace

Tensor first_seed(const Shape& shape) {
  RandomTensors random(99);
  return seed_from(random, shape);
}

std::vector<size_t> leaves_of(const OpCase& op_case) {
  std::vector<size_t> leaves;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const bool is_number = op_case.inputs[i].defined() && is_floating(op_case.inputs[i].dtype());
    if (is_number && !is_in(op_case.constants, i)) leaves.push_back(i);
  }
  return leaves;
}

Tensors run(const OpCase& op_case, DType dtype, Device device) {
  const Tensors inputs = inputs_of(op_case, dtype, device);
  return op_case.function ? run_function(op_case, op_case.function, inputs) : op_case.kernel(inputs);
}

Tensors expected_of(const OpCase& op_case, DType dtype) {
  const auto inputs = [&] {
    Tensors rounded;
    for (const Tensor& input : inputs_of(op_case, dtype)) rounded.push_back(clone(converted(input, DType::f64)));
    return rounded;
  };
  if (!op_case.function) return op_case.reference(inputs());
  Tensors expected = run_function(op_case, op_case.composition ? op_case.composition : op_case.function, inputs());
  const size_t gradients = leaves_of(op_case).size();
  if (op_case.reference) {
    const Tensors outputs = op_case.reference(inputs());
    std::copy(outputs.begin(), outputs.end(), expected.begin());
  }
  if (op_case.gradients) {
    const Tensors known = op_case.gradients(inputs());
    std::copy(known.begin(), known.end(), expected.end() - static_cast<std::ptrdiff_t>(gradients));
  }
  return expected;
}

OpCase::Function one_output(OneOutput function) {
  return [function = std::move(function)](Tape& tape, const Inputs& inputs) { return Inputs{function(tape, inputs)}; };
}

OpCase function_case(std::string op, std::string variant, Tensors inputs, OneOutput function) {
  return function_case(std::move(op), std::move(variant), std::move(inputs), one_output(std::move(function)));
}

OpCase function_case(std::string op, std::string variant, Tensors inputs, OpCase::Function function) {
  OpCase made{std::move(op), std::move(variant), std::move(inputs)};
  made.function = std::move(function);
  made.roundings = 6;  // what the forward pass stores, and what the backward pass makes of it
  return made;
}

OpCase& add_composed(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                     int64_t sum_length, OneOutput function, OneOutput composition, std::vector<size_t> wide) {
  cases.push_back(function_case(std::move(op), std::move(variant), std::move(inputs), std::move(function)));
  cases.back().composition = one_output(std::move(composition));
  cases.back().sum_length = sum_length;
  cases.back().wide = std::move(wide);
  return cases.back();
}

OpCase& add_referenced(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                       int64_t sum_length, OneOutput function, OpCase::Run reference) {
  cases.push_back(function_case(std::move(op), std::move(variant), std::move(inputs), std::move(function)));
  cases.back().reference = std::move(reference);
  cases.back().has_bf16_on_cpu = true;
  cases.back().sum_length = sum_length;
  return cases.back();
}

OpCase& add_operation(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                      int64_t sum_length, OpCase::Run kernel, OpCase::Run reference, std::vector<size_t> wide,
                      double amplification) {
  cases.push_back({std::move(op), std::move(variant), std::move(inputs), std::move(kernel), std::move(reference),
                   sum_length, amplification, std::move(wide)});
  return cases.back();
}

OpCase& add_in_place(std::vector<OpCase>& cases, std::string op, std::string variant, Tensors inputs,
                     int64_t sum_length, Change kernel, Change reference, std::vector<size_t> wide,
                     std::vector<size_t> results) {
  const auto run = [&](Change change) {
    return [change = std::move(change), results](const Tensors& in) {
      change(in);
      Tensors out;
      for (const size_t i : results) out.push_back(in[i]);
      return out;
    };
  };
  return add_operation(cases, std::move(op), std::move(variant), std::move(inputs), sum_length, run(std::move(kernel)),
                       run(std::move(reference)), std::move(wide));
}

std::string name_of(const Shape& shape) {
  std::string name;
  for (const int64_t size : shape) {
    if (!name.empty()) name += 'x';
    name += std::to_string(size);
  }
  return name;
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

Tensor whole(RandomTensors& random, const Shape& shape, int64_t low, int64_t high) {
  return recast(random.integers(shape, low, high), DType::f64);
}

Tensor f64_beside(const Tensor& tensor, const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())}, tensor.device());
}

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> cases = [] {
    load_backends();  // kernels of basic operations make some of the inputs
    std::vector<OpCase> all;
    // These come first, since they draw their inputs by their number in the table.
    add_listed_cases(all);
    add_vocabulary_cases(all);
    add_view_cases(all);
    add_row_cases(all);
    add_basic_function_cases(all);
    add_norm_function_cases(all);
    add_lookup_function_cases(all);
    add_attention_function_cases(all);
    add_block_cases(all);
    add_vq_function_cases(all);
    add_elementwise_cases(all);
    add_activation_cases(all);
    add_reduction_cases(all);
    add_lookup_cases(all);
    add_cross_entropy_cases(all);
    add_muon_cases(all);
    add_optimizer_cases(all);
    add_ring_cases(all);
    add_rotary_cases(all);
    add_attention_cases(all);
    add_knn_cases(all);
    add_knn_gate_cases(all);
    add_vq_attention_cases(all);
    add_vq_codebook_cases(all);
    add_feed_forward_cases(all);
    add_delta_rule_cases(all);
    add_exact_gelu_cases(all);
    return all;
  }();
  return cases;
}

}  // namespace quire::test
