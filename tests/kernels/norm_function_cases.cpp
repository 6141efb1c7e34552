// Normalisations and activations against compositions.
#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

namespace {

using Inputs = std::vector<Variable>;

Variable constant(double value) {
  return Variable::constant(Tensor::from(std::vector<double>{value}, {1}));
}

// x over the root of its mean square; eps stands inside the root.
Variable by_mean_square(Tape& t, const Variable& x, double eps) {
  return divide(t, x, square_root(t, add(t, mean(t, multiply(t, x, x), -1, true), constant(eps))));
}

void push_composed(std::vector<OpCase>& cases, OpCase made, OneOutput composition, std::vector<size_t> wide = {}) {
  made.composition = one_output(std::move(composition));
  made.wide = std::move(wide);
  made.sum_length = 400;
  made.amplification = 4;
  made.roundings = 12;
  cases.push_back(std::move(made));
}

}  // namespace

void add_norm_function_cases(std::vector<OpCase>& cases) {
  RandomTensors r(2);
  for (const Shape& shape : {Shape{1, 5}, Shape{3, 2, 7}, Shape{67, 3}}) {
    const std::string size = std::to_string(shape.numel()) + "_function";
    const Shape width{shape[-1]};
    push_composed(cases,
                  function_case("rms_norm", size, {r.normal(shape), r.normal(width)},
                                [](Tape& t, const Inputs& x) { return rms_norm(t, x[0], x[1], 0.1); }),
                  [](Tape& t, const Inputs& x) { return multiply(t, by_mean_square(t, x[0], 0.1), x[1]); }, {1});
    push_composed(cases,
                  function_case("layer_norm", size, {r.normal(shape), r.normal(width), r.normal(width)},
                                [](Tape& t, const Inputs& x) { return layer_norm(t, x[0], x[1], x[2], 0.1); }),
                  [](Tape& t, const Inputs& x) {
                    const Variable centred = subtract(t, x[0], mean(t, x[0], -1, true));
                    return add(t, multiply(t, by_mean_square(t, centred, 0.1), x[1]), x[2]);
                  },
                  {1, 2});
    push_composed(cases,
                  function_case("l2_normalize", size, {r.normal(shape)},
                                [](Tape& t, const Inputs& x) { return l2_normalize(t, x[0], 0.1); }),
                  [](Tape& t, const Inputs& x) {
                    return divide(t, x[0],
                                  square_root(t, add(t, sum(t, multiply(t, x[0], x[0]), -1, true), constant(0.1))));
                  });
    for (const auto& [name, kind] : {std::pair{"relu_", ops::Activation::relu},
                                     {"gelu_", ops::Activation::gelu},
                                     {"silu_", ops::Activation::silu}}) {
      push_composed(cases,
                    function_case("activation", name + size, {r.normal(shape)},
                                  [kind = kind](Tape& t, const Inputs& x) { return activation(t, x[0], kind); }),
                    [kind = kind](Tape& t, const Inputs& x) {
                      if (kind == ops::Activation::relu) return maximum(t, x[0], constant(0));
                      if (kind == ops::Activation::silu) return multiply(t, x[0], sigmoid(t, x[0]));
                      // The tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
                      const Variable cube = multiply(t, multiply(t, x[0], x[0]), x[0]);
                      const Variable inner = scale(t, add(t, x[0], scale(t, cube, 0.044715)), 0.7978845608028654);
                      return multiply(t, scale(t, x[0], 0.5), add(t, tanh(t, inner), constant(1)));
                    });
    }
    push_composed(cases,
                  function_case("swiglu", size, {r.normal(shape), r.normal(shape)},
                                [](Tape& t, const Inputs& x) { return swiglu(t, x[0], x[1]); }),
                  [](Tape& t, const Inputs& x) { return multiply(t, multiply(t, x[0], sigmoid(t, x[0])), x[1]); });
  }
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
