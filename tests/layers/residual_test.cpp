// The last product of a sub-layer adds its result to the residual stream, and hidden features are differentiated by
// one: neither takes a pass of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/elementwise.h"
#include "tests/support/hand_batch.h"
#include "tests/support/model_reader.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

constexpr int64_t kVocabulary = 7;
constexpr int64_t kLength = 8;

Batch documents() {
  Batch batch = one_segment(2, kLength, {1, 1});
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    batch.tokens[i] = static_cast<int32_t>(i % kVocabulary);
    batch.targets[i] = static_cast<int32_t>((i + 1) % kVocabulary);
    batch.position[i] = static_cast<int32_t>(i % kLength);
    batch.loss_mask[i] = 1;
  }
  batch.target_count = 2 * kLength;
  return batch;
}

// How often sums are made in a forward pass of training, and gradients of activations in the backward pass.
struct Calls {
  int64_t add, activation_backward;
};
Calls calls_with(const std::vector<std::string>& settings) {
  const RunConfig config = parse_config<RunConfig>(
      "model: {width: 8, heads: 2, layers: 2, position: {kind: none}, mlp: {kind: gelu, hidden: 12, bias: true}}",
      "model.yaml", settings);
  ModelReader reader(config.model, kVocabulary, 2, kLength);
  reader.training = true;
  for (OpBase* op : OpBase::all()) op->reset_stats();
  OpBase::set_timing(true);
  reader.loss(documents());
  const int64_t sums = ops::add.stats().calls;
  reader.gradient(documents());
  OpBase::set_timing(false);
  return {sums, ops::activation_backward.stats().calls};
}

TEST(Residuals, AreAddedInTheLastProductOfASubLayer) {
  const auto set = [](const char* key, const char* value) { return fmt::format("model.{}={}", key, value); };
  // The commitment losses of the layers of Transformer-VQ are summed up, one number each, and MoBA adds what the own
  // block and the chosen ones give.
  for (const auto& [mixer, sums] :
       {std::pair{"{kind: softmax}", 0}, {"{kind: vq, vq: {activation: none}}", 2}, {"{kind: moba}", 2}}) {
    for (const char* mlp : {"relu", "gelu", "swiglu"}) {
      for (const char* placement : {"pre", "post"}) {
        for (const char* recompute : {"none", "blocks", "attention", "mlp"}) {
          const std::vector<std::string> settings{set("attention", mixer), set("mlp.kind", mlp),
                                                  set("norm.placement", placement), set("recompute", recompute)};
          const Calls calls = calls_with(settings);
          EXPECT_EQ(calls.add, sums) << fmt::format("{}", fmt::join(settings, " "));
          EXPECT_EQ(calls.activation_backward, 0) << fmt::format("{}", fmt::join(settings, " "));
        }
      }
    }
  }
}

TEST(Residuals, AreAddedBehindWhatComesBetween) {
  // Dropout adds them in its own pass; a row that is left out is multiplied by 0 first.
  EXPECT_EQ(calls_with({"model.dropout.residual=0.1"}).add, 0);
  EXPECT_EQ(calls_with({"model.dropout.layer=0.5"}).add, 4);
  // So does what is normalised before it is added, and what is computed again beside another sum.
  EXPECT_EQ(calls_with({"model.norm.placement=after"}).add, 4);
  EXPECT_EQ(calls_with({"model.residual=parallel"}).add, 0);
  EXPECT_EQ(calls_with({"model.residual=parallel", "model.recompute=mlp"}).add, 2);
  // With dropout of hidden features their gradient is stored, once for each layer.
  EXPECT_EQ(calls_with({"model.dropout.mlp=0.1"}).activation_backward, 2);
}

}  // namespace
}  // namespace quire::test
