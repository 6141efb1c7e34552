// Tests what a block computes around its parts: placements of normalisations, sequential and parallel residuals.
#include "layers/model/block.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

constexpr int64_t kTokens = 3;
constexpr int64_t kWidth = 4;

// factor * normalised input + 1: any mistake of place shows.
class Affine final : public Part {
 public:
  explicit Affine(double factor) : factor_(factor) {}
  Variable operator()(const Forward& f, const PartInput& input) const override {
    const Variable y = scale(f.tape, input.normalised(f.tape), factor_);
    std::vector<double> ones(static_cast<size_t>(y.value().numel()), 1.0);
    return add(f.tape, y, Variable::constant(Tensor::from(ones, y.shape())));
  }

 private:
  double factor_;
};

using Token = std::vector<double>;

Token normalised(const Token& x, double eps, const std::vector<double>& gain) {
  double square = 0;
  for (const double value : x) square += value * value;
  Token y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(gain[i] * x[i] / std::sqrt(square / static_cast<double>(x.size()) + eps));
  }
  return y;
}

Token sum(const Token& a, const Token& b) {
  Token y;
  for (size_t i = 0; i < a.size(); ++i) y.push_back(a[i] + b[i]);
  return y;
}

class Blocks : public ::testing::TestWithParam<std::pair<NormPlacement, Residual>> {
 protected:
  Blocks() {
    model_.width = kWidth;
    model_.layers = 1;
    model_.norm.placement = GetParam().first;
    model_.residual = GetParam().second;
  }

  Tensor computed(const Tensor& x) {
    Declarations declared;
    const auto part = [](const char* name, double factor) {
      return SubLayerSpec{name, Recompute::attention,
                          [factor](const Scope&, const ModelConfig&) { return std::make_unique<Affine>(factor); }};
    };
    const Block block(Scope(store_, declared, DType::f64), model_, {part("first", 2), part("second", -3)});
    store_.allocate(DType::f64, kCpu, 1);
    RandomTensors random(5);
    for (const ParameterStore::Entry& entry : store_.entries()) {
      store_.value(entry).copy_from(random.normal(entry.shape));
      gains_[entry.name] = store_.value(entry).to_vector<double>();
    }
    StatePool pool(declared.state, 1, kTokens, DType::f64, kCpu);
    const Batch batch = one_segment(1, kTokens, {1});
    pool.begin_step(batch);
    const StateView state = pool.view(0, 1);
    Tape tape(false);
    return block({.tape = tape, .batch = batch, .state = state}, Variable::constant(x)).value();
  }

  Token norm(const std::string& name, const Token& x) const {
    return normalised(x, model_.norm.eps, gains_.at(name + ".weight"));
  }
  // `from` is what the part reads, `to` what its output is added to.
  Token sub_layer(const std::string& name, double factor, const Token& from, const Token& to) const {
    const NormPlacement placement = GetParam().first;
    const bool before = placement == NormPlacement::pre || placement == NormPlacement::both;
    Token y = before ? norm(name + "_norm", from) : from;
    for (double& value : y) value = factor * value + 1;
    if (placement == NormPlacement::after) y = norm(name + "_norm", y);
    if (placement == NormPlacement::both) y = norm(name + "_out_norm", y);
    y = sum(to, y);
    return placement == NormPlacement::post ? norm(name + "_norm", y) : y;
  }

 private:
  ModelConfig model_;
  ParameterStore store_;
  std::map<std::string, std::vector<double>> gains_;
};

TEST_P(Blocks, NormaliseAndAdd) {
  const Tensor x = RandomTensors(1).normal({1, kTokens, kWidth});
  const std::vector<double> y = computed(x).to_vector<double>();
  const std::vector<double> in = x.to_vector<double>();
  for (int64_t t = 0; t < kTokens; ++t) {
    const Token token(in.begin() + t * kWidth, in.begin() + (t + 1) * kWidth);
    const Token h = sub_layer("first", 2, token, token);
    const Token expected = sub_layer("second", -3, GetParam().second == Residual::parallel ? token : h, h);
    for (size_t i = 0; i < kWidth; ++i) {
      EXPECT_NEAR(y[static_cast<size_t>(t * kWidth) + i], expected[i], 1e-12) << t << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Blocks,
                         ::testing::Values(std::pair{NormPlacement::pre, Residual::sequential},
                                           std::pair{NormPlacement::post, Residual::sequential},
                                           std::pair{NormPlacement::after, Residual::sequential},
                                           std::pair{NormPlacement::both, Residual::sequential},
                                           std::pair{NormPlacement::pre, Residual::parallel},
                                           std::pair{NormPlacement::after, Residual::parallel},
                                           std::pair{NormPlacement::both, Residual::parallel}),
                         [](const auto& tested) {
                           return std::string(name_in_config(tested.param.first)) + "_" +
                                  std::string(name_in_config(tested.param.second));
                         });

}  // namespace
}  // namespace quire::test
