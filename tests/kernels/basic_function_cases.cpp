// Linear maps, scales, dropout and sums that are losses; and functions whose gradient is not a derivative.
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "autograd/functions/rows.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

Variable composed_linear(Tape& t, const Inputs& x) {
  const Variable y = matmul(t, x[0], x[1], {.transpose_b = true});
  return x.size() > 2 ? add(t, y, x[2]) : y;
}

// Returns a dropout's factor for every element: its result for ones.
Variable factors(const Shape& shape, const ops::DropoutKey& key) {
  const Tensor ones = Tensor::zeros(shape, DType::f64);
  std::fill_n(values(ones), ones.numel(), 1.0);
  Tape tape(false);
  return Variable::constant(dropout(tape, Variable::constant(ones), {}, key).value());
}

void add_linear(std::vector<OpCase>& cases, RandomTensors& r) {
  const auto linear_of = [](Tape& t, const Inputs& x) {
    return linear(t, x[0], x[1], x.size() > 2 ? x[2] : Variable());
  };
  add_composed(cases, "linear", "", {r.normal({2, 3, 5}), r.normal({7, 5})}, 7, linear_of, composed_linear);
  add_composed(cases, "linear", "bias", {r.normal({3, 1}), r.normal({2, 1}), r.normal({2})}, 3, linear_of,
               composed_linear, {2});
  add_composed(
      cases, "linear", "twice", {r.normal({3, 5}), r.normal({5, 5}), r.normal({5})}, 25,
      [](Tape& t, const Inputs& x) { return linear(t, linear(t, x[0], x[1], x[2]), x[1], x[2]); },
      [](Tape& t, const Inputs& x) {
        return composed_linear(t, {composed_linear(t, x), x[1], x[2]});
      },
      {2});
  for (const auto& [name, kind] :
       {std::pair{"relu", ops::Activation::relu}, {"gelu", ops::Activation::gelu}, {"silu", ops::Activation::silu}}) {
    add_composed(
        cases, "linear_activation", name, {r.normal({3, 5}), r.normal({4, 5}), r.normal({4})}, 12,
        [kind = kind](Tape& t, const Inputs& x) { return linear_activation(t, x[0], x[1], x[2], kind); },
        [kind = kind](Tape& t, const Inputs& x) { return activation(t, composed_linear(t, x), kind); }, {2});
  }
}

void add_scales(std::vector<OpCase>& cases, RandomTensors& r) {
  const auto scalar = [](double value) { return Variable::constant(Tensor::from(std::vector<double>{value}, {1})); };
  for (const Shape& shape : {Shape{2, 3}, Shape{16384}, Shape{3, 16411}, Shape{0}}) {
    add_composed(
        cases, "scale", name_of(shape), {r.normal(shape)}, 1,
        [](Tape& t, const Inputs& x) { return scale(t, x[0], -1.7); },
        [scalar](Tape& t, const Inputs& x) { return multiply(t, x[0], scalar(-1.7)); });
  }
  OpCase& sum = add_composed(
      cases, "add_scaled", "", {r.normal({3, 7}), r.normal({1}), r.normal({3, 7})}, 21,
      [](Tape& t, const Inputs& x) { return add_scaled(t, x[0], x[2].value(), x[1]); },
      [](Tape& t, const Inputs& x) { return add(t, x[0], multiply(t, x[2], x[1])); }, {1});
  sum.constants = {2};
  for (const Shape& shape : {Shape{1, 1}, Shape{2, 3, 5}, Shape{5, 7}, Shape{9, 16}, Shape{257, 129}}) {
    add_composed(
        cases, "add_bias", name_of(shape), {r.normal(shape), r.normal({shape[-1]})}, shape.numel() / shape[-1],
        [](Tape& t, const Inputs& x) { return add_bias(t, x[0], x[1]); },
        [](Tape& t, const Inputs& x) { return add(t, x[0], x[1]); }, {1});
  }
  const auto size_of_scale = [](Tape& t, const Variable& s) {
    const Variable heads = reshape(t, s, {s.dim(0), 1});
    return maximum(t, heads, scale(t, heads, -1));
  };
  // Some scales are negative.
  for (const Shape& shape :
       {Shape{1, 1, 1, 1}, Shape{2, 3, 5, 2}, Shape{1, 5, 3, 7}, Shape{1, 331, 2, 29}, Shape{1, 67, 3, 48}}) {
    add_composed(
        cases, "scale_heads", name_of(shape), {r.normal(shape), r.normal({shape[2]})}, shape.numel() / shape[2],
        [](Tape& t, const Inputs& x) { return scale_heads(t, x[0], x[1]); },
        [=](Tape& t, const Inputs& x) { return multiply(t, x[0], size_of_scale(t, x[1])); }, {1});
  }
  add_composed(
      cases, "scale_heads", "twice", {r.normal({1, 3, 2}), r.normal({3})}, 12,
      [](Tape& t, const Inputs& x) { return scale_heads(t, scale_heads(t, x[0], x[1]), x[1]); },
      [=](Tape& t, const Inputs& x) {
        return multiply(t, x[0], multiply(t, size_of_scale(t, x[1]), size_of_scale(t, x[1])));
      },
      {1});
}

void add_losses(std::vector<OpCase>& cases, RandomTensors& r) {
  OpCase total = function_case("weighted_sum", "", {r.normal({3, 2}), r.normal({3, 2})},
                               [](Tape& t, const Inputs& x) { return weighted_sum(t, x[0], x[1].value()); });
  total.constants = {1};
  total.reference = [](const Tensors& in) {
    double sum = 0;
    for (int64_t i = 0; i < 6; ++i) sum += values(in[0])[i] * values(in[1])[i];
    return Tensors{Tensor::from(std::vector<double>{sum}, {1})};
  };
  total.sum_length = 6;
  cases.push_back(total);
  // The loss takes part with its weight as soon as x does.
  const Tensor ones = Tensor::from(std::vector<double>(6, 1), {3, 2});
  OpCase with = function_case(
      "with_loss", "", {r.normal({3, 2}), r.normal({3, 2}), ones},
      [](Tape& t, const Inputs& x) { return with_loss(t, x[0], weighted_sum(t, x[1], x[2].value()), 0.5); });
  with.constants = {2};
  with.reference = [](const Tensors& in) { return Tensors{in[0]}; };
  with.gradients = [](const Tensors&) {
    return Tensors{first_seed({3, 2}), Tensor::from(std::vector<double>(6, 0.5), {3, 2})};
  };
  cases.push_back(with);
  OpCase through = function_case("with_gradient_to", "", {r.normal({5}), r.normal({5})},
                                 [](Tape& t, const Inputs& x) { return with_gradient_to(t, x[1].value(), x[0]); });
  through.constants = {1};
  through.reference = [](const Tensors& in) { return Tensors{in[1]}; };
  through.gradients = [](const Tensors&) { return Tensors{first_seed({5})}; };
  cases.push_back(through);
}

void add_dropouts(std::vector<OpCase>& cases, RandomTensors& r) {
  const ops::DropoutKey key{RandomKey::of(3, 4), 5, 6, 0.4};
  add_composed(
      cases, "dropout", "function", {r.normal({2, 3, 7})}, 1,
      [key](Tape& t, const Inputs& x) { return dropout(t, x[0], {}, key); },
      [key](Tape& t, const Inputs& x) {
        return multiply(t, x[0], factors({2, 3, 7}, key));
      });
  const auto with_residual = [key](Tape& t, const Inputs& x) {
    return add(t, x.back(), multiply(t, x[0], factors({1, 3, 5}, key)));
  };
  add_composed(
      cases, "dropout", "residual_function", {r.normal({1, 3, 5}), r.normal({1, 3, 5})}, 1,
      [key](Tape& t, const Inputs& x) { return dropout(t, x[0], x[1], key); }, with_residual);
  add_composed(
      cases, "dropout", "residual_is_input", {r.normal({1, 3, 5})}, 2,
      [key](Tape& t, const Inputs& x) { return dropout(t, x[0], x[0], key); }, with_residual);
  add_composed(
      cases, "dropout", "off", {r.normal({1, 3, 5}), r.normal({1, 3, 5})}, 1,
      [](Tape& t, const Inputs& x) { return dropout(t, x[0], x[1], {}); },
      [](Tape& t, const Inputs& x) { return add(t, x[0], x[1]); });
}

}  // namespace

void add_basic_function_cases(std::vector<OpCase>& cases) {
  RandomTensors random(1);
  add_linear(cases, random);
  add_scales(cases, random);
  add_losses(cases, random);
  add_dropouts(cases, random);
}

}  // namespace quire::test
