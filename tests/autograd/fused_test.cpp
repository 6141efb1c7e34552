// Fused operations against plain compositions of what they stand for.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/attention.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/embedding.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

TEST(FusedAttention, GradientsThatNobodyWantsAreLeftOut) {
  const ops::AttentionInputs in = attention_inputs({.slots = 4, .bias = true, .relative = true}, 19);
  const Tensor dout = RandomTensors(20).normal({2, 5, 2, 3});
  const auto gradient_of_values = [&](Variable (*made)(const Tensor&)) {
    const Variable v = Variable::leaf(in.v);
    Tape tape;
    const Variable y = attention(tape,
                                 {made(in.q), made(in.k), v, made(in.cache_k), made(in.cache_v), made(in.bias),
                                  made(in.r), made(in.u), made(in.v_bias)},
                                 in);
    tape.backward({{weighted_sum(tape, y, dout), 1.0}});
    return v.gradient()->value();
  };
  const Tensor alone = gradient_of_values([](const Tensor& t) { return Variable::constant(t); });
  EXPECT_LE(relative_error(alone, gradient_of_values([](const Tensor& t) { return Variable::leaf(t); })), 1e-12);
}

struct Projection {
  Variable hidden, weight, bias;
  CrossEntropy loss;
};

Projection project(const Tensor& targets, const Tensor& mask, int64_t budget, DType dtype) {
  RandomTensors random(21);
  Projection p{Variable::leaf(random.normal({3, 11, 13}, 1, 0, dtype)),
               Variable::leaf(random.normal({29, 13}, 0.5, 0, dtype)),
               Variable::leaf(random.normal({29}, 0.5, 0, wide_type(dtype))),
               {}};
  Tape tape;
  p.loss = projection_cross_entropy(tape, p.hidden, p.weight, p.bias, targets, mask, 0.25, budget);
  tape.backward({{p.loss.sum, 0.25}});
  return p;
}

TEST(ProjectionCrossEntropy, ChunksChangeNothing) {
  RandomTensors random(22);
  const Tensor targets = random.integers({33}, 0, 29);
  const Tensor mask = random.flags({33});
  const Projection whole = project(targets, mask, 1 << 20, DType::f64);
  for (const int64_t budget : {1, 29, 5 * 29, 32 * 29, 33 * 29}) {  // 1, 1, 5, 32 and 33 positions at a time
    const Projection parts = project(targets, mask, budget, DType::f64);
    EXPECT_LE(relative_error(parts.loss.nll, whole.loss.nll), 1e-14);
    EXPECT_LE(relative_error(parts.loss.sum.value(), whole.loss.sum.value()), 1e-14);
    EXPECT_LE(relative_error(parts.hidden.gradient()->value(), whole.hidden.gradient()->value()), 1e-13);
    EXPECT_LE(relative_error(parts.weight.gradient()->value(), whole.weight.gradient()->value()), 1e-13);
    EXPECT_LE(relative_error(parts.bias.gradient()->value(), whole.bias.gradient()->value()), 1e-13);
  }
}

TEST(ProjectionCrossEntropy, RefusesAnotherSeedThanItWasTold) {
  RandomTensors random(25);
  Tape tape;
  const CrossEntropy loss =
      projection_cross_entropy(tape, Variable::leaf(random.normal({2, 3})), Variable::leaf(random.normal({5, 3})), {},
                               random.integers({2}, 0, 5), random.flags({2}), 0.5);
  EXPECT_ERROR(tape.backward({{loss.sum, 1.0}}), ErrorKind::internal,
               "projection_cross_entropy: swept with 1, but gradients were taken for 0.5");
}

TEST(ProjectionCrossEntropy, EqualsLogSoftmaxOfAllLogits) {
  RandomTensors random(23);
  const Tensor targets = random.integers({33}, 0, 29);
  const Tensor mask = random.flags({33});
  const Projection fused = project(targets, mask, 7 * 29, DType::f64);
  Tape tape(false);
  const Tensor logits = linear(tape, fused.hidden.detached(), fused.weight.detached(), fused.bias.detached()).value();
  double total = 0;
  for (int64_t m = 0; m < 33; ++m) {
    const double* x = logits.data<double>() + m * 29;
    double sum = 0;
    for (int64_t v = 0; v < 29; ++v) sum += std::exp(x[v]);
    const bool counted = mask.data<uint8_t>()[m] != 0;
    const double nll = counted ? std::log(sum) - x[targets.data<int32_t>()[m]] : 0;
    EXPECT_NEAR(fused.loss.nll.data<double>()[m], nll, 1e-12);
    total += nll;
  }
  EXPECT_NEAR(fused.loss.sum.value().data<double>()[0], total, 1e-11);
}

TEST(ProjectionCrossEntropy, SinglePrecisionStaysClose) {
  RandomTensors random(24);
  const Tensor targets = random.integers({33}, 0, 29);
  const Tensor mask = random.flags({33});
  const Projection wide = project(targets, mask, 5 * 29, DType::f64);
  const Projection narrow = project(targets, mask, 5 * 29, DType::f32);
  // Sums of 13, 29 and 33 terms in f32: sqrt(75) units of 6e-8 with a factor 8 for exp and cancellation.
  EXPECT_EQ(narrow.loss.nll.dtype(), DType::f32);
  EXPECT_LE(relative_error(narrow.loss.nll, wide.loss.nll), 4e-6);
  EXPECT_LE(relative_error(narrow.hidden.gradient()->value(), wide.hidden.gradient()->value()), 4e-6);
  EXPECT_LE(relative_error(narrow.weight.gradient()->value(), wide.weight.gradient()->value()), 4e-6);
}

TEST(FusedDropout, EqualsDropoutAndAdd) {
  const Tensor x = RandomTensors(25).normal({2, 5, 9});
  const Tensor residual = RandomTensors(26).normal({2, 5, 9});
  const ops::DropoutKey key{RandomKey::of(1, 2), 3, 4, 0.5};
  Tape tape(false);
  const Variable fused = dropout(tape, Variable::constant(x), Variable::constant(residual), key);
  const Variable parts = add(tape, Variable::constant(residual), dropout(tape, Variable::constant(x), {}, key));
  EXPECT_TRUE(same_bits(fused.value(), parts.value()));
}

}  // namespace
}  // namespace quire::test
