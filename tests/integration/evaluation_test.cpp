// What evaluation may depend on, and what not.
#include "tests/support/expect_error.h"
#include "tests/support/tiny_run.h"
#include "trainers/evaluator.h"

namespace quire::test {
namespace {

constexpr int64_t kSubsequence = 16;

RunConfig tiny_config(const std::vector<std::string>& overrides = {}) {
  return parse_config<RunConfig>(kTinyConfig, "tiny", overrides);
}

// A model with weights large enough to have opinions.
struct Model {
  explicit Model(const RunConfig& config)
      : machine(Machine::choose(config.run)), network(store, config.model, 258, machine.dtype) {
    store.allocate(machine.dtype, machine.device, 5);
  }
  Machine machine;
  ParameterStore store;
  Network network;
};

class Evaluation : public ::testing::Test {
 protected:
  Evaluation() {
    write_corpus(folder_ / "c.h5", {{"valid", texts_of_lengths({1, 5 * kSubsequence + 3, kSubsequence - 1, kSubsequence,
                                                                kSubsequence + 1, 40, 2})}});
    corpus_ = Corpus::open(folder_ / "c.h5");
  }
  EvaluationResult evaluate_rows(Model& model, const RunConfig& config, int64_t rows) {
    return evaluate(model.store, config, *corpus_, model.machine,
                    {.split = "valid", .rows = rows, .documents = {}, .progress = {}, .stop = {}});
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(Evaluation, DoesNotDependOnRows) {
  for (const char* cache : {"model.attention.cache.kind=hidden", "model.attention.cache.kind=kv"}) {
    const RunConfig config = tiny_config({cache, "model.initialization.std=0.4"});
    Model model(config);
    const EvaluationResult one = evaluate_rows(model, config, 1);
    EXPECT_EQ(one.tokens, one.bytes + 7);
    for (const int64_t rows : {3, 8}) {
      const EvaluationResult many = evaluate_rows(model, config, rows);
      EXPECT_NEAR(many.token_perplexity() / one.token_perplexity(), 1, 1e-6) << rows;
      EXPECT_EQ(many.context_mean, one.context_mean);
      for (size_t i = 0; i < one.documents.size(); ++i) {
        EXPECT_EQ(many.documents[i].name, one.documents[i].name);
        // f32 sums in another order: 1e-6 of some nats per token, for few tokens.
        EXPECT_NEAR(many.documents[i].nll / one.documents[i].nll, 1, 1e-5) << one.documents[i].name;
      }
    }
  }
}

// With a window and a cache as long, the cut into subsequences changes nothing.
TEST_F(Evaluation, DoesNotDependOnTheSubsequenceWhereTheWindowIsCarried) {
  const std::vector<std::string> overrides{"model.attention.window=12", "model.layers=1",
                                           "model.initialization.std=0.4"};
  const RunConfig config = tiny_config(overrides);
  Model model(config);
  const double nll = evaluate_rows(model, config, 2).nll;
  for (const char* subsequence : {"data.subsequence=5", "data.subsequence=100"}) {
    EXPECT_NEAR(evaluate_rows(model, evaluation_config(config, {subsequence}), 2).nll / nll, 1, 1e-6) << subsequence;
  }
}

TEST_F(Evaluation, LongerCachesAndOtherSubsequencesRun) {
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult trained = evaluate_rows(model, config, 3);
  const EvaluationResult longer =
      evaluate_rows(model, evaluation_config(config, {"model.attention.cache.length=50"}), 3);
  const EvaluationResult shorter = evaluate_rows(model, evaluation_config(config, {"data.subsequence=7"}), 3);
  const EvaluationResult span =
      evaluate_rows(model, evaluation_config(config, {"model.attention.same_length=true"}), 3);
  const EvaluationResult half =
      evaluate_rows(model, evaluation_config(config, {"model.attention.cache.dtype=bf16"}), 3);
  EXPECT_LT(span.context_mean, trained.context_mean);
  EXPECT_NE(half.nll, trained.nll);
  EXPECT_NEAR(half.nll / trained.nll, 1, 1e-2);
  EXPECT_GT(longer.context_mean, trained.context_mean);
  EXPECT_LT(shorter.context_mean, trained.context_mean);
  EXPECT_NE(longer.nll, trained.nll);
  EXPECT_EQ(longer.tokens, trained.tokens);
  EXPECT_ERROR(evaluation_config(config, {"model.heads=1"}), ErrorKind::config, "model.heads: cannot differ");
}

// One layer, documents of 1 and 2 bytes: BOS sees itself (1), the second token two (2), the third three (3).
TEST_F(Evaluation, ContextMeanByHand) {
  write_corpus(folder_ / "d.h5", {{"valid", {"a", "bc"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  const RunConfig config = tiny_config({"model.layers=1"});
  Model model(config);
  EXPECT_DOUBLE_EQ(evaluate_rows(model, config, 1).context_mean, (1 + 2 + 1 + 2 + 3) / 5.0);
  // A span of one is the token itself.
  const RunConfig itself =
      tiny_config({"model.layers=1", "model.attention.same_length=true", "model.attention.cache.length=1"});
  EXPECT_DOUBLE_EQ(evaluate_rows(model, itself, 1).context_mean, 1);
  const RunConfig cut = tiny_config({"model.layers=1", "data.subsequence=1", "model.attention.cache.length=1"});
  EXPECT_DOUBLE_EQ(evaluate_rows(model, cut, 1).context_mean, (1 + 2 + 1 + 2 + 2) / 5.0);
}

TEST_F(Evaluation, OverridesOfLayersMaySeeFurther) {
  const std::string overrides = "model.layer_overrides=[{layers: [-1], attention: {window: 20, cache: {length: 20}}}]";
  const RunConfig config = tiny_config({overrides, "model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult trained = evaluate_rows(model, config, 3);
  for (const char* text : {"model.layer_overrides.0.attention.window=40",
                           "model.layer_overrides.0.attention.cache.length=3", "model.layer_overrides=[]"}) {
    EXPECT_NE(evaluate_rows(model, evaluation_config(config, {text}), 3).nll, trained.nll) << text;
  }
  EXPECT_ERROR(evaluation_config(config, {"model.layer_overrides=[{layers: [0], position: none}]"}), ErrorKind::config,
               "model.layer_overrides: cannot differ");
}

}  // namespace
}  // namespace quire::test
