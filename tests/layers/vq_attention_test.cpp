// Vector-quantised attention as a layer: what its options change, and only then.
#include "layers/mixers/vq_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "kernels/elementwise.h"
#include "layers/state/state_pool.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/parameters.h"
#include "tests/support/random_tensor.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

constexpr int64_t kWidth = 8;
constexpr int64_t kRows = 2;
constexpr int64_t kTokens = 8;

class Layer {
 public:
  explicit Layer(const std::vector<std::string>& settings) {
    const RunConfig config = parse_config<RunConfig>(
        "model: {width: 8, heads: 2, layers: 1, position: {kind: alibi}, initialization: {std: 0.5}, attention: {kind: "
        "vq, "
        "vq: {window: 4, block: 4, codes: 6}}}",
        "model.yaml", settings);
    const LayerConfig layer = config.model.layer_configs()[0];
    mixer_ =
        std::make_unique<VqAttention>(Scope(store_, declared_, DType::f64),
                                      Place{config.model, layer, layer.attention.mechanism.options}, Surroundings{});
    store_.allocate(DType::f64, kCpu, 3);
    pool_ = std::make_unique<StatePool>(declared_.state, kRows, kTokens, DType::f64, kCpu);
  }

  // x [R, T, E]; state goes on.
  std::vector<double> step(const Tensor& x, bool begins) {
    const Batch batch = one_segment(kRows, kTokens, std::vector<uint8_t>(kRows, begins ? 1 : 0));
    pool_->begin_step(batch);
    Tape tape(false);
    const Variable z = Variable::constant(x);
    const Variable y = (*mixer_)({.tape = tape, .batch = batch, .state = pool_->view(0, kRows)}, {z, nullptr});
    pool_->commit();
    return values_of(y.value());
  }

  // The gradient of the key projection from the commitment loss alone, in a batch with padding.
  std::vector<double> commitment_gradient(const Tensor& x, const Batch& batch) {
    pool_->begin_step(batch);
    store_.zero_gradients();
    Tape tape;
    const Variable z = Variable::constant(x);
    const double count = static_cast<double>(declared_.losses.counts(batch)[0].second);
    const Variable y = (*mixer_)({.tape = tape,
                                  .batch = batch,
                                  .state = pool_->view(0, kRows),
                                  .training = true,
                                  .write_state = false,
                                  .loss_seeds = {1 / count}},
                                 {z, nullptr});
    const Variable nothing = weighted_sum(tape, y, Tensor::zeros(y.shape(), DType::f64));
    tape.backward({{nothing, 1.0}});
    return values_of(gradient_named(store_, "key.weight"));
  }

  void set(const std::string& name, double value) {
    const Tensor& values = parameter_named(store_, name).variable.value();
    ops::copy(values,
              Tensor::from(std::vector<double>(static_cast<size_t>(values.numel()), value), values.shape(), kCpu));
  }

  // Codewords that are others than those the state was written with.
  void move_codewords() {
    const Tensor& sum = store_.buffers()[0].value;
    ops::copy(sum, RandomTensors(77).normal(sum.shape()));
  }
  const Codebook& codebook() const { return mixer_->codebook(); }

 private:
  ParameterStore store_;
  Declarations declared_;
  std::unique_ptr<VqAttention> mixer_;
  std::unique_ptr<StatePool> pool_;
};

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

Tensor inputs(uint32_t seed) {
  return RandomTensors(seed).normal({kRows, kTokens, kWidth});
}

// A document that the window covers has nothing in the cache.
TEST(VqAttention, ReadsNoCacheWhileTheWindowCoversTheDocument) {
  const std::string wide = "model.attention.vq.window=16";
  Layer with({wide});
  Layer without({wide, "model.attention.vq.compressive_cache=false"});
  for (uint32_t i = 0; i < 2; ++i) EXPECT_EQ(with.step(inputs(i), i == 0), without.step(inputs(i), i == 0));
  // The third piece is 16 to 24 tokens in.
  EXPECT_GT(distance(with.step(inputs(2), false), without.step(inputs(2), false)), 1e-3);
}

TEST(VqAttention, CurrentCodewordsMatterOnceTheyHaveMoved) {
  Layer stored({});
  Layer current({"model.attention.vq.current_codewords=true"});
  EXPECT_EQ(stored.step(inputs(0), true), current.step(inputs(0), true));
  EXPECT_EQ(stored.step(inputs(1), false), current.step(inputs(1), false));
  stored.move_codewords();
  current.move_codewords();
  EXPECT_GT(distance(stored.step(inputs(2), false), current.step(inputs(2), false)), 1e-3);
  // A document that begins has no keys of earlier codewords.
  EXPECT_EQ(stored.step(inputs(3), true), current.step(inputs(3), true));
}

TEST(VqAttention, TheCommitmentIsAMeanOverTokensOrOverAllPositions) {
  std::vector<std::vector<int32_t>> segments(kRows, std::vector<int32_t>(kTokens, 0));
  for (int64_t t = 4; t < kTokens; ++t) segments[1][static_cast<size_t>(t)] = -1;
  const Batch batch = batch_of(segments, {1, 1});
  const std::string weight = "model.attention.vq.commitment=0.5";
  const std::vector<double> tokens = Layer({weight}).commitment_gradient(inputs(5), batch);
  const std::vector<double> positions =
      Layer({weight, "model.attention.vq.commitment_mean=positions"}).commitment_gradient(inputs(5), batch);
  double largest = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(positions[i], tokens[i] * 12 / 16, 1e-14);
    largest = std::max(largest, std::abs(tokens[i]));
  }
  EXPECT_GT(largest, 1e-3);
}

// It multiplies the products of queries with keys of the window and with codewords of the cache alike.
TEST(VqAttention, TheLearnedScaleMultipliesQueries) {
  Layer published({});
  Layer scaled({"model.attention.vq.learned_scale=true"});
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(scaled.step(inputs(i), i == 0), published.step(inputs(i), i == 0));
  scaled.set("scale", 3);
  EXPECT_GT(distance(scaled.step(inputs(3), false), published.step(inputs(3), false)), 1e-3);
  // Queries of norm zero ask for nothing, no matter how they are scaled; with a scale of zero all queries are such.
  Layer silent({});
  silent.set("query.weight", 0);
  scaled.set("scale", 0);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(scaled.step(inputs(i), i == 0), silent.step(inputs(i), i == 0));
}

// In bf16 a codeword is what the window holds of it, unless f32 is asked for.
TEST(VqAttention, CodewordsHaveThePrecisionOfTheRun) {
  const Layer rounded({});
  const Layer exact({"model.attention.vq.codebook.dtype=f32"});
  const std::vector<double> all = values_of(exact.codebook().codewords(DType::f64));
  EXPECT_EQ(values_of(rounded.codebook().codewords(DType::f64)), all);
  EXPECT_EQ(values_of(exact.codebook().codewords(DType::bf16)), all);
  const Tensor words = rounded.codebook().codewords(DType::bf16);
  const Tensor narrow = Tensor::empty(words.shape(), DType::bf16);
  const Tensor again = Tensor::empty_like(words);
  ops::convert(narrow, words);
  ops::convert(again, narrow);
  EXPECT_EQ(values_of(words), values_of(again));
  EXPECT_NE(values_of(words), all);
  EXPECT_LE(distance(values_of(words), all), 1.0 / 256);
}

}  // namespace
}  // namespace quire::test
