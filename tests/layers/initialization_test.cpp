// The weights that models of each kind begin with.
#include "layers/parts/initialization.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trainers/setup/model.h"

namespace quire::test {
namespace {

struct Statistics {
  double mean = 0;
  double std = 0;
  double largest = 0;
  int64_t count = 0;
};

// Reads the parameters whose names end so, in a model of width 64 with two layers.
class Weights {
 public:
  explicit Weights(const std::vector<std::string>& settings) {
    const RunConfig config = parse_config<RunConfig>(
        "model: {width: 64, layers: 2, heads: 4, mlp: {hidden: 256}, norm: {kind: layer}}\n", "run.yaml", settings);
    const Network network(store_, config.model, 512, DType::f64);
    store_.allocate(DType::f64, kCpu, 1);
  }
  Statistics of(const std::string& ending) const {
    Statistics s;
    double square = 0;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      if (!entry.name.ends_with(ending)) continue;
      for (const double value : entry.variable.value().to_vector<double>()) {
        ++s.count;
        s.mean += value;
        square += value * value;
        s.largest = std::max(s.largest, std::abs(value));
      }
    }
    EXPECT_GT(s.count, 0) << ending;
    s.mean /= static_cast<double>(s.count);
    s.std = std::sqrt(std::max(0.0, square / static_cast<double>(s.count) - s.mean * s.mean));
    return s;
  }
  // Four deviations of the estimates from n draws.
  void expect(const std::string& ending, double mean, double std) const {
    const Statistics s = of(ending);
    const double n = static_cast<double>(s.count);
    EXPECT_NEAR(s.mean, mean, 4 * std / std::sqrt(n) + 1e-15) << ending;
    EXPECT_NEAR(s.std, std, 4 * std / std::sqrt(2 * n) + 1e-15) << ending;
  }

 private:
  ParameterStore store_;
};

TEST(Initialization, Normal) {
  const Weights weights({"model.position.kind=xl"});
  const double residual = 0.02 / std::sqrt(4.0);
  weights.expect("embedding.weight", 0, 0.02);
  weights.expect("query.weight", 0, 0.02);
  weights.expect("up.weight", 0, 0.02);
  weights.expect("attention.out.weight", 0, residual);
  weights.expect("down.weight", 0, residual);
  weights.expect("_norm.weight", 1, 0);
  weights.expect("_norm.bias", 0, 0);
  weights.expect("position.u", 0, 0.02);
  EXPECT_GT(weights.of("embedding.weight").largest, 3.5 * 0.02);
}

// DRT (and GPT-2 without its rule for the residual stream).
TEST(Initialization, NormalWithoutResidualScale) {
  const Weights weights({"model.initialization={std: 0.1, scale_residual: false}", "model.position.kind=t5"});
  weights.expect("down.weight", 0, 0.1);
  weights.expect("attention.bias", 0, 0.1);
}

TEST(Initialization, TransformerXl) {
  const Weights weights({"model.initialization={kind: transformer_xl}", "model.mlp.bias=true"});
  weights.expect("embedding.weight", 0, 0.02);
  weights.expect("attention.out.weight", 0, 0.02);  // no rule for the residual stream
  weights.expect("relative.weight", 0, 0.02);
  weights.expect("norm.weight", 1, 0.02);
  weights.expect("norm.bias", 0, 0);
  weights.expect("up.bias", 0, 0);
  weights.expect("position.v", 0, 0.02);
}

TEST(Initialization, FanIn) {
  const Weights weights(
      {"model.initialization={kind: fan_in}", "model.position.kind=t5", "model.embedding.tied=false"});
  // A normal distribution that is cut at three deviations has 0.98658 of its deviation left.
  const double cut = 0.98658;
  weights.expect("query.weight", 0, cut / 8);
  weights.expect("embedding.weight", 0, cut / 8);
  weights.expect("head.weight", 0, cut / 8);
  weights.expect("attention.out.weight", 0, cut / 8 / 2);
  weights.expect("down.weight", 0, cut / 16 / 2);
  weights.expect("attention.bias", 0, 1 / std::sqrt(32.0));
  const double largest = weights.of("embedding.weight").largest;
  EXPECT_LE(largest, 3.0 / 8);
  EXPECT_GT(largest, 2.8 / 8);
}

TEST(Initialization, EmbeddingsAndPositionBiasesMayHaveTheirOwn) {
  const Weights weights(
      {"model.initialization={kind: fan_in, embedding_std: 1, position_bias_std: 0}", "model.embedding.tied=false"});
  weights.expect("embedding.weight", 0, 1);
  weights.expect("head.weight", 0, 0.98658 / 8);
  weights.expect("position.u", 0, 0);
  weights.expect("position.v", 0, 0);
}

}  // namespace
}  // namespace quire::test
