// Tests perplexities of models whose probabilities follow from their weights by hand.
#include <cmath>

#include "tests/support/tiny_run.h"
#include "trainers/evaluation/evaluator.h"

namespace quire::test {
namespace {

// Two documents: 14 bytes, 5 words (the two bytes after the line break are one), 16 targets with the two EOS.
const SplitTexts kTexts{{"valid", {"ab cd\n\xC3\xA9", "aa\tba\n"}}};
constexpr double kBytes = 14;
constexpr double kTargets = 16;
constexpr double kWords = 5;

const Tensor& parameter(const ParameterStore& store, const std::string& name) {
  for (const ParameterStore::Entry& entry : store.entries()) {
    if (entry.name == name) return entry.variable.value();
  }
  throw std::runtime_error("no parameter " + name);
}

class KnownProbability : public ::testing::Test {
 protected:
  KnownProbability()
      : config_(parse_config<RunConfig>(kTinyConfig, "tiny", {"model.norm.kind=layer", "model.embedding.tied=false"})),
        machine_(Machine::choose(config_.run)),
        network_(store_, config_.model, 258, machine_.dtype) {
    store_.allocate(machine_.dtype, machine_.device, 1);
    store_.values().zero();
    write_corpus(folder_ / "c.h5", kTexts);
    corpus_ = Corpus::open(folder_ / "c.h5");
  }
  EvaluationResult evaluate_all() {
    return evaluate(store_, config_, *corpus_, machine_,
                    {.split = "valid", .rows = 2, .documents = {}, .progress = {}, .stop = {}});
  }
  void expect_nll(double nll) {
    const EvaluationResult result = evaluate_all();
    EXPECT_EQ(static_cast<double>(result.bytes), kBytes);
    EXPECT_EQ(static_cast<double>(result.tokens), kTargets);
    EXPECT_EQ(static_cast<double>(result.words), kWords);
    EXPECT_NEAR(result.nll / nll, 1, 1e-6);
    EXPECT_NEAR(result.token_perplexity() / std::exp(nll / kTargets), 1, 1e-5);
    EXPECT_NEAR(result.word_perplexity() / std::exp(nll / kWords), 1, 1e-4);
    EXPECT_NEAR(result.bits_per_byte() / (nll / std::log(2.0) / kBytes), 1, 1e-6);
  }

  TemporaryDirectory folder_;
  RunConfig config_;
  Machine machine_;
  ParameterStore store_;
  Network network_;
  std::unique_ptr<Corpus> corpus_;
};

// Weights of zero give equal logits: every target costs ln 258, so the token perplexity is 258 exactly and a byte
// costs log2(258) * 16 / 14 = 9.155 bits.
TEST_F(KnownProbability, Uniform) {
  expect_nll(kTargets * std::log(258.0));
  EXPECT_NEAR(evaluate_all().bits_per_byte(), 9.15561, 1e-4);
}

// The last normalisation gives (1, 0, ...) everywhere; one weight makes the letter a nine times as likely as each of
// the other 257 ids: p(a) = 9/266 for its four occurrences, 1/266 for the other twelve targets.
TEST_F(KnownProbability, OneLikelyLetter) {
  const float one = 1;
  parameter(store_, "norm.bias").slice(0, 0, 1).upload(&one, 1);
  const auto weight = static_cast<float>(std::log(9.0));
  parameter(store_, "head.weight").select(0, 'a').slice(0, 0, 1).upload(&weight, 1);
  expect_nll(kTargets * std::log(266.0) - 4 * std::log(9.0));
}

// The same model reads "aab", whose last "a" and "b" are recalled, and "ba", whose "b" does not count; it always
// considers a the most likely.
TEST_F(KnownProbability, MarkedTargets) {
  const float one = 1;
  parameter(store_, "norm.bias").slice(0, 0, 1).upload(&one, 1);
  const auto weight = static_cast<float>(std::log(9.0));
  parameter(store_, "head.weight").select(0, 'a').slice(0, 0, 1).upload(&weight, 1);
  const ByteTokenizer tokenizer;
  CorpusWriter writer(folder_ / "marked.h5", tokenizer, {});
  const auto add = [&](const std::string& text, const std::vector<uint8_t>& marks) {
    writer.begin_document("valid", text, "here");
    writer.append_tokens(std::vector<int32_t>(text.begin(), text.end()));
    writer.append_marks(marks);
    writer.end_document();
  };
  add("aab", {kCounted, kCounted | kRecalled, kCounted | kRecalled, kCounted});
  add("ba", {0, kCounted | kRecalled, 0});
  writer.finish();
  corpus_ = Corpus::open(folder_ / "marked.h5");
  const double a = std::log(266.0) - std::log(9.0);
  const double other = std::log(266.0);
  const EvaluationResult result = evaluate_all();
  EXPECT_EQ(result.tokens, 5);  // a a b EOS, a
  EXPECT_NEAR(result.nll, 3 * a + 2 * other, 1e-5);
  EXPECT_FALSE(result.has_text);
  EXPECT_TRUE(std::isnan(result.bits_per_byte()));
  ASSERT_TRUE(result.recall.has_value());
  EXPECT_EQ(result.recall->tokens, 3);
  EXPECT_EQ(result.recall->correct, 2);
  EXPECT_NEAR(result.recall->nll, 2 * a + other, 1e-5);
  EXPECT_EQ(result.documents[0].recall.correct, 1);
  EXPECT_NEAR(result.documents[1].recall.nll, a, 1e-5);
  const auto json = recall_to_json(*result.recall);
  EXPECT_NEAR(json["accuracy"].get<double>(), 2.0 / 3, 1e-9);
  EXPECT_NEAR(json["perplexity"].get<double>(), std::exp((2 * a + other) / 3), 1e-4);
}

}  // namespace
}  // namespace quire::test
