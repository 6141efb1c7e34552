// Numeric gradients in f64 of every differentiable operation.
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "autograd/gradcheck.h"
#include "tests/autograd/gradient_cases.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

class Gradients : public ::testing::TestWithParam<size_t> {};

TEST_P(Gradients, AgreeWithCentralDifferences) {
  const GradientCase& gradient_case = gradient_cases()[GetParam()];
  const auto loss = [&](Tape& tape, const std::vector<Variable>& inputs) {
    const Variable out = gradient_case.function(tape, inputs);
    if (out.shape() == Shape{1} && out.value().dtype() == DType::f64) return out;
    return weighted_sum(tape, out, RandomTensors(99).normal(out.shape()));
  };
  std::vector<Tensor> inputs;
  for (const Tensor& input : gradient_case.inputs) inputs.push_back(clone(input));
  // Central differences at step h are off by h^2 f'''/6, about 1e-10, and by the rounding of the loss over h: values up
  // to 100 times 1e-16 over 1e-5, about 1e-9.
  const GradcheckResult result = gradcheck(loss, inputs);
  EXPECT_LE(result.worst, 2e-8) << result.where;
}

INSTANTIATE_TEST_SUITE_P(, Gradients, ::testing::Range<size_t>(0, gradient_cases().size()),
                         [](const auto& tested) { return gradient_cases()[tested.param].name; });

TEST(Gradcheck, FindsAWrongGradient) {
  // The derivative of |x| times 2 is taken for that of x^2: right at 1 only.
  const auto wrong = [](Tape& tape, const std::vector<Variable>& in) {
    const Variable detached = scale(tape, in[0], 1).detached();
    return weighted_sum(tape, multiply(tape, in[0], detached), Tensor::from(std::vector<double>{1, 1}, {2}));
  };
  EXPECT_GE(gradcheck(wrong, {Tensor::from(std::vector<double>{1, -3}, {2})}).worst, 0.4);
}

}  // namespace
}  // namespace quire::test
