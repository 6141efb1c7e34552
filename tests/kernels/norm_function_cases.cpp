// Normalisations and activations against compositions.
#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

constexpr double kEps = 1e-3;

Variable constant(double value) {
  return Variable::constant(Tensor::from(std::vector<double>{value}, {1}));
}

// x over the root of its mean square; eps stands inside the root.
Variable by_mean_square(Tape& t, const Variable& x, double eps) {
  return divide(t, x, square_root(t, add(t, mean(t, multiply(t, x, x), -1, true), constant(eps))));
}

void add_norms(std::vector<OpCase>& cases, RandomTensors& r, const Shape& shape) {
  const std::string size = name_of(shape);
  const Shape width{shape[-1]};
  const Tensor x = r.normal(shape, 1.5, 0.5);
  // Row means are sums over the width; weight gradients are sums over the rows.
  const int64_t terms = shape[-1] + shape.numel() / std::max<int64_t>(shape[-1], 1);
  // Its input has another gradient, too: the one of the norm is added to it.
  add_composed(
      cases, "rms_norm", size, {x, r.normal(width)}, terms,
      [](Tape& t, const Inputs& in) { return add(t, in[0], rms_norm(t, in[0], in[1], kEps)); },
      [](Tape& t, const Inputs& in) { return add(t, in[0], multiply(t, by_mean_square(t, in[0], kEps), in[1])); }, {1});
  add_composed(
      cases, "layer_norm", size, {x, r.normal(width), r.normal(width)}, terms,
      [](Tape& t, const Inputs& in) { return layer_norm(t, in[0], in[1], in[2], kEps); },
      [](Tape& t, const Inputs& in) {
        const Variable centred = subtract(t, in[0], mean(t, in[0], -1, true));
        return add(t, multiply(t, by_mean_square(t, centred, kEps), in[1]), in[2]);
      },
      {1, 2});
  add_composed(
      cases, "l2_normalize", size, {x}, terms, [](Tape& t, const Inputs& in) { return l2_normalize(t, in[0], kEps); },
      [](Tape& t, const Inputs& in) {
        const Variable square = sum(t, multiply(t, in[0], in[0]), -1, true);
        return divide(t, in[0], square_root(t, add(t, square, constant(kEps))));
      });
}

void add_activations(std::vector<OpCase>& cases, RandomTensors& r, const Shape& shape) {
  const std::string size = name_of(shape);
  for (const auto& [name, kind] : {std::pair{"relu_", ops::Activation::relu},
                                   {"gelu_", ops::Activation::gelu},
                                   {"silu_", ops::Activation::silu}}) {
    // A single value is positive: below zero 1 + tanh cancels, and its error is small beside other values only.
    add_composed(
        cases, "activation", name + size, {r.normal(shape, 2, shape.numel() == 1 ? 5 : 0)}, 1,
        [kind = kind](Tape& t, const Inputs& x) { return activation(t, x[0], kind); },
        [kind = kind](Tape& t, const Inputs& x) {
          if (kind == ops::Activation::relu) return maximum(t, x[0], constant(0));
          if (kind == ops::Activation::silu) return multiply(t, x[0], sigmoid(t, x[0]));
          // The tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
          const Variable cube = multiply(t, multiply(t, x[0], x[0]), x[0]);
          const Variable inner = scale(t, add(t, x[0], scale(t, cube, 0.044715)), 0.7978845608028654);
          return multiply(t, scale(t, x[0], 0.5), add(t, tanh(t, inner), constant(1)));
        });
  }
  add_composed(
      cases, "swiglu", size, {r.normal(shape, 3), r.normal(shape)}, 1,
      [](Tape& t, const Inputs& x) { return swiglu(t, x[0], x[1]); },
      [](Tape& t, const Inputs& x) { return multiply(t, multiply(t, x[0], sigmoid(t, x[0])), x[1]); });
}

}  // namespace

void add_norm_function_cases(std::vector<OpCase>& cases) {
  RandomTensors r(2);
  // Not one or two columns: a normalised row is then constant up to eps, and its derivative is all cancellation.
  for (const Shape& shape : {Shape{1, 5}, Shape{5, 7}, Shape{3, 2, 7}, Shape{67, 3}, Shape{0, 3}, Shape{211, 37},
                             Shape{3, 641}, Shape{19, 64}, Shape{3, 1304}}) {
    add_norms(cases, r, shape);
  }
  for (const Shape& shape : {Shape{1, 1}, Shape{13}, Shape{3, 2, 7}, Shape{33333}}) add_activations(cases, r, shape);
  // One normalisation used twice, as the pre-norm of carried and current states is.
  OpCase shared =
      function_case("layer_norm", "shared_weights", {r.normal({2, 5}), r.normal({3, 5}), r.normal({5}), r.normal({5})},
                    [](Tape& t, const Inputs& x) {
                      const Variable a = layer_norm(t, x[0], x[2], x[3], 0.1);
                      const Variable b = layer_norm(t, x[1], x[2], x[3], 0.1);
                      return linear(t, a, b);
                    });
  shared.wide = {2, 3};
  shared.sum_length = 400;
  shared.roundings = 24;
  cases.push_back(shared);
}

}  // namespace quire::test
