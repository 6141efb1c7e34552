// The kinds of feed-forward layers against their formulas.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "layers/parts/basic.h"
#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

constexpr int64_t kTokens = 3;
constexpr int64_t kWidth = 4;
constexpr int64_t kHidden = 5;

double gelu_erf(double x) {
  return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

struct Kind {
  MlpKind kind;
  double (*activation)(double);
  bool gated;
};

class FeedForward : public ::testing::TestWithParam<std::tuple<Kind, bool>> {};

TEST_P(FeedForward, ComputesItsFormula) {
  const auto& [kind, bias] = GetParam();
  ModelConfig model;
  model.width = kWidth;
  model.mlp = {.kind = kind.kind, .hidden = kHidden, .bias = bias};
  ParameterStore store;
  Declarations declared;
  const Mlp mlp(Scope(store, declared, DType::f64), model);
  store.allocate(DType::f64, kCpu, 1);
  RandomTensors random(3);
  std::map<std::string, std::vector<double>> weights;
  for (const ParameterStore::Entry& entry : store.entries()) {
    store.value(entry).copy_from(random.normal(entry.shape));
    weights[entry.name] = store.value(entry).to_vector<double>();
  }
  EXPECT_EQ(weights.size(), static_cast<size_t>((kind.gated ? 3 : 2) * (bias ? 2 : 1)));
  const Tensor x = random.normal({1, kTokens, kWidth});
  const Batch batch = one_segment(1, kTokens, {1});
  StatePool pool(declared.state, 1, kTokens, DType::f64, kCpu);
  pool.begin_step(batch);
  const StateView state = pool.view(0, 1);
  Tape tape(false);
  const std::vector<double> y =
      mlp({.tape = tape, .batch = batch, .state = state}, {Variable::constant(x)}).value().to_vector<double>();

  const auto project = [&](const std::string& name, const std::vector<double>& in, int64_t out) {
    std::vector<double> result;
    for (size_t n = 0; n < static_cast<size_t>(out); ++n) {
      double sum = bias ? weights.at(name + ".bias")[n] : 0;
      for (size_t k = 0; k < in.size(); ++k) sum += weights.at(name + ".weight")[n * in.size() + k] * in[k];
      result.push_back(sum);
    }
    return result;
  };
  const std::vector<double> in = x.to_vector<double>();
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<double> token(in.begin() + t * kWidth, in.begin() + (t + 1) * kWidth);
    std::vector<double> hidden = project("up", token, kHidden);
    const std::vector<double> gate = kind.gated ? project("gate", token, kHidden) : hidden;
    for (size_t n = 0; n < hidden.size(); ++n) {
      hidden[n] = kind.gated ? kind.activation(gate[n]) * hidden[n] : kind.activation(hidden[n]);
    }
    const std::vector<double> expected = project("down", hidden, kWidth);
    for (size_t n = 0; n < expected.size(); ++n) {
      EXPECT_NEAR(y[static_cast<size_t>(t * kWidth) + n], expected[n], 1e-12);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , FeedForward,
    ::testing::Combine(::testing::Values(Kind{MlpKind::swiglu, [](double x) { return x / (1 + std::exp(-x)); }, true},
                                         Kind{MlpKind::geglu, gelu, true}, Kind{MlpKind::geglu_erf, gelu_erf, true},
                                         Kind{MlpKind::gelu, gelu, false}, Kind{MlpKind::gelu_erf, gelu_erf, false}),
                       ::testing::Bool()),
    [](const auto& tested) {
      return std::string(name_in_config(std::get<0>(tested.param).kind)) +
             (std::get<1>(tested.param) ? "_with_bias" : "");
    });

}  // namespace
}  // namespace quire::test
