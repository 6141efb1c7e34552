// Tests that training learns: a broken gradient, state or optimizer does not reach the bounds on the loss.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

std::vector<std::string> repeated(const std::string& pattern, int64_t documents, int64_t bytes) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < documents; ++i) {
    std::string text = pattern.substr(static_cast<size_t>(i) % pattern.size());
    while (static_cast<int64_t>(text.size()) < bytes) text += pattern;
    texts.push_back(text.substr(0, static_cast<size_t>(bytes)));
  }
  return texts;
}

TEST(Learning, ARepeatedSentenceIsLearntByHeart) {
  const TinyRun tiny;
  const std::string sentence = "A quire is a gathering of leaves, folded one within the other. ";
  write_corpus(tiny.corpus(), {{"train", repeated(sentence, 6, 900)}, {"valid", repeated(sentence, 1, 700)}},
               {.force = true});
  const ProgramResult trained =
      tiny.train("run", {"schedule.steps=300", "schedule.warmup=20", "model.width=32", "model.mlp.hidden=64",
                         "evaluate.every=300", "log.every=50", "checkpoint.every=0"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto lines = read_metrics(tiny / "run/metrics.jsonl");
  EXPECT_GT(lines.front()["loss"].get<double>(), 1.0);
  EXPECT_LT(lines[lines.size() - 2]["loss"].get<double>(), 0.03);
  // About 0.1; another order of sums moves it by a few hundredths.
  EXPECT_LT(lines.back()["evaluation"]["bits_per_byte"].get<double>(), 0.15);
}

// Every document repeats a random word of 12 letters, longer than a subsequence of 8: without what is carried from one
// subsequence to the next no letter can be known.
TEST(Learning, WhatIsCarriedIsUsed) {
  const TinyRun tiny;
  const auto texts = [](int64_t first, int64_t count) {
    std::vector<std::string> all;
    for (int64_t i = first; i < first + count; ++i) {
      std::string word;
      for (uint32_t k = 0; k < 12; ++k) {
        word += static_cast<char>('a' + philox({1, 0}, 0, static_cast<uint32_t>(i), k, 0)[0] % 8);
      }
      all.push_back(repeated(word, 1, 120).front());
    }
    return all;
  };
  write_corpus(tiny.corpus(), {{"train", texts(0, 600)}, {"valid", texts(600, 20)}}, {.force = true});
  const std::vector<std::string> options{"data.subsequence=8",          "data.rows=16",       "model.width=48",
                                         "model.mlp.hidden=96",         "schedule.steps=900", "schedule.warmup=50",
                                         "evaluate.every=900",          "log.every=100",      "checkpoint.every=0",
                                         "model.initialization.std=0.1"};
  std::vector<std::string> without = options;
  without.insert(without.end(),
                 {"model.attention.softmax.carry.kind=none", "model.attention.softmax.carry.length=none"});
  ASSERT_EQ(tiny.train("with", options).code, 0);
  ASSERT_EQ(tiny.train("without", without).code, 0);
  const auto bits = [&](const std::string& run) {
    return read_metrics(tiny / run / "metrics.jsonl").back()["evaluation"]["bits_per_byte"].get<double>();
  };
  // Eight letters are 3 bits each; the first twelve of 120 nobody can know.
  EXPECT_GT(bits("without"), 2.9);
  EXPECT_LT(bits("with"), 0.45);
}

}  // namespace
}  // namespace quire::test
