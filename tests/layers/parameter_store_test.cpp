#include "layers/parameters/parameter_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layers/parameters/scope.h"
#include "layers/parts/basic.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/parameters.h"

namespace quire::test {
namespace {

constexpr int64_t kLine = 16;  // elements of f32 in a cache line

TEST(ParameterStore, DecayingParametersComeFirst) {
  ParameterStore store;
  store.parameter("gain", {3}, Initializer::constant(1), false);
  store.parameter("matrix", {5, 7}, Initializer::normal(1), true);
  store.parameter("bias", {17}, Initializer::constant(-2), false);
  store.parameter("other", {1, 1}, Initializer::constant(4), true);
  EXPECT_FALSE(store.is_allocated());
  store.allocate(DType::f32, kCpu, 1);

  EXPECT_EQ(parameter_named(store, "matrix").offset, 0);
  EXPECT_EQ(parameter_named(store, "other").offset, 3 * kLine);
  EXPECT_EQ(store.decayed_elements(), 4 * kLine);
  EXPECT_EQ(parameter_named(store, "gain").offset, 4 * kLine);
  EXPECT_EQ(parameter_named(store, "bias").offset, 5 * kLine);
  EXPECT_EQ(store.values().numel(), 7 * kLine);
  EXPECT_EQ(store.gradients().numel(), 7 * kLine);
  EXPECT_EQ(store.parameter_count(), 3 + 35 + 17 + 1);
}

TEST(ParameterStore, ParametersAndGradientsAreSlicesOfTheArenas) {
  ParameterStore store;
  const ParameterStore::Entry* w = store.parameter("w", {2, 3}, Initializer::constant(5), true);
  const ParameterStore::Entry* b = store.parameter("b", {2}, Initializer::constant(7), false);
  store.allocate(DType::f64, kCpu, 1);
  EXPECT_EQ(store.values().data<double>()[w->offset + 5], 5);
  EXPECT_EQ(store.values().data<double>()[w->offset + 6], 0);  // the gap up to the next cache line
  EXPECT_EQ(store.values().data<double>()[b->offset], 7);
  store.values().data<double>()[w->offset] = 11;
  EXPECT_EQ(w->variable.value().data<double>()[0], 11);

  b->variable.gradient()->add(Tensor::from(std::vector<double>{1, 2}, {2}));
  b->variable.gradient()->add(Tensor::from(std::vector<double>{1, 2}, {2}));
  EXPECT_EQ(ParameterStore::slice(store.gradients(), *b).to_vector<double>(), (std::vector<double>{2, 4}));
  store.zero_gradients();
  EXPECT_EQ(b->variable.gradient()->value().to_vector<double>(), (std::vector<double>{0, 0}));
}

TEST(ParameterStore, InitialValuesAreNormal) {
  ParameterStore store;
  const int64_t count = 100003;
  const ParameterStore::Entry* w = store.parameter("w", {count}, {0.5, 0.02, 0}, true);
  const ParameterStore::Entry* other = store.parameter("other", {count}, Initializer::normal(1), true);
  store.allocate(DType::f64, kCpu, 7);
  const std::vector<double> x = w->variable.value().to_vector<double>();
  const std::vector<double> y = other->variable.value().to_vector<double>();
  double sum = 0;
  double square = 0;
  double fourth = 0;
  double product = 0;
  double neighbours = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = (x[i] - 0.5) / 0.02;
    sum += z;
    square += z * z;
    fourth += z * z * z * z;
    product += z * y[i];
    if (i > 0) neighbours += y[i] * y[i - 1];
  }
  // Five standard deviations of each mean: variances 1, 2, 96, 1 and 1 over the count.
  const double unit = 5 / std::sqrt(static_cast<double>(count));
  const auto n = static_cast<double>(count);
  EXPECT_NEAR(sum / n, 0, unit);
  EXPECT_NEAR(square / n, 1, unit * std::sqrt(2));
  EXPECT_NEAR(fourth / n, 3, unit * std::sqrt(96));
  EXPECT_NEAR(product / n, 0, unit);
  EXPECT_NEAR(neighbours / n, 0, unit);
}

TEST(ParameterStore, InitialValuesDependOnNameAndSeedOnly) {
  const auto values = [](const std::vector<std::string>& names, uint64_t seed) {
    ParameterStore store;
    for (const std::string& name : names) store.parameter(name, {3, 5}, Initializer::normal(1), true);
    store.allocate(DType::f32, kCpu, seed);
    return clone(parameter_named(store, "a").variable.value());
  };
  const Tensor alone = values({"a"}, 1);
  EXPECT_TRUE(same_bits(values({"z", "a", "b"}, 1), alone));
  EXPECT_FALSE(same_bits(values({"a"}, 2), alone));
  ParameterStore store;
  store.parameter("b", {3, 5}, Initializer::normal(1), true);
  store.allocate(DType::f32, kCpu, 1);
  EXPECT_FALSE(same_bits(parameter_named(store, "b").variable.value(), alone));
}

TEST(ParameterStore, SinglePrecisionRoundsTheSameDraws) {
  const auto values = [](DType dtype) {
    ParameterStore store;
    const ParameterStore::Entry* w = store.parameter("w", {3, 5}, Initializer::normal(1), true);
    store.allocate(dtype, kCpu, 1);
    return clone(w->variable.value());
  };
  EXPECT_TRUE(same_bits(values(DType::f32), converted(values(DType::f64), DType::f32)));
}

TEST(ParameterStore, ASecondModelSharesTheWeights) {
  ParameterStore store;
  Declarations training;
  const Linear first(Scope(store, training, DType::f64, "layer"), 3, 2, Initializer::normal(1), true);
  store.allocate(DType::f64, kCpu, 1);
  Declarations evaluation;
  const Linear second(Scope(store, evaluation, DType::f64, "layer"), 3, 2, Initializer::normal(1), true);
  EXPECT_EQ(store.entries().size(), 2U);

  const Variable x = Variable::constant(RandomTensors(1).normal({4, 3}));
  Tape tape(false);
  parameter_named(store, "layer.bias").variable.value().data<double>()[0] = 3;
  EXPECT_TRUE(same_bits(first(tape, x).value(), second(tape, x).value()));
}

TEST(ParameterStore, RefusesModelsThatDoNotFit) {
  ParameterStore store;
  store.parameter("w", {3, 5}, Initializer::constant(0), true);
  store.allocate(DType::f32, kCpu, 1);
  EXPECT_ERROR(store.parameter("w", {5, 3}, Initializer::constant(0), true), ErrorKind::checkpoint,
               "parameter w: the model wants [5, 3] but [3, 5] is stored");
  EXPECT_ERROR(store.parameter("v", {1}, Initializer::constant(0), false), ErrorKind::checkpoint,
               "parameter v: the stored model has none of this name");
  EXPECT_ERROR(store.allocate(DType::f32, kCpu, 1), ErrorKind::internal, "allocated twice");
}

TEST(ParameterStore, BuffersAreFilledAndShared) {
  ParameterStore store;
  ParameterStore::Buffer* counts = store.buffer("codebook.counts", {3}, DType::f32, Initializer::constant(1.5));
  EXPECT_EQ(store.buffer("codebook.counts", {3}, DType::f32, Initializer::constant(0)), counts);
  EXPECT_EQ(store.buffers().size(), 1U);
  EXPECT_ERROR(store.buffer("codebook.counts", {4}, DType::f32, Initializer::constant(0)), ErrorKind::internal,
               "[4] wanted, [3] stored");
  const ParameterStore::Buffer* sums = store.buffer("codebook.sums", {2, 50}, DType::f32, Initializer::normal(2));
  store.allocate(DType::f32, kCpu, 1);
  EXPECT_EQ(counts->value.to_vector<float>(), (std::vector<float>{1.5F, 1.5F, 1.5F}));
  double squares = 0;
  for (const float value : sums->value.to_vector<float>()) squares += value * value;
  EXPECT_NEAR(squares / 100, 4, 1.5);
  EXPECT_ERROR(store.buffer("other", {3}, DType::f32, Initializer::constant(0)), ErrorKind::checkpoint,
               "the stored model has none of this name");
}

TEST(ParameterStore, MetaParametersOnlyCount) {
  ParameterStore store;
  store.parameter("huge", {1 << 20, 1 << 20}, Initializer::normal(1), true);
  store.allocate(DType::f32, kMeta, 1);
  EXPECT_EQ(store.parameter_count(), int64_t{1} << 40);
  EXPECT_EQ(store.values().bytes(), int64_t{4} << 40);
}

TEST(Scope, NamesAreDottedPaths) {
  ParameterStore store;
  Declarations declared;
  const Scope scope(store, declared, DType::f32);
  scope.child("blocks", 3).child("memory").param("gain", {4}, Initializer::constant(1));
  scope.child("blocks", 3).param("matrix", {4, 4}, Initializer::constant(1));
  scope.child("a").root().param("shared", {4}, Initializer::constant(1));
  scope.child("blocks", 3).state_log(scope.child("blocks", 3).state_logs("cache", 7), "keys", {2, 5});
  scope.state_log(scope.child("memory").state_logs("", 7), "keys", {2, 5});
  EXPECT_FALSE(parameter_named(store, "blocks.3.memory.gain").decays);
  EXPECT_TRUE(parameter_named(store, "blocks.3.matrix").decays);
  EXPECT_FALSE(parameter_named(store, "shared").decays);
  EXPECT_EQ(declared.state.logs()[0].name, "blocks.3.cache.keys");
  EXPECT_EQ(declared.state.logs()[1].name, "memory.keys");
}

}  // namespace
}  // namespace quire::test
