// Compares the computed chance of guessing a value that was not read with counts over many values.
#include "data/tasks/recall_value.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/tasks/make_task.h"
#include "data/tokenizers/byte_tokenizer.h"

namespace quire {
namespace {

TEST(RecallValue, GuessesAreRightAsOftenAsTheValuesSay) {
  constexpr int kDraws = 40000;
  TaskRandom random({.seed = 3, .task = 1, .index = 0}, "test");
  for (const FactKind kind : {FactKind::names, FactKind::numbers, FactKind::definitions, FactKind::signs}) {
    std::map<std::string, std::map<char, int>> next;  // characters by what comes before them
    std::vector<RecallValue> values;
    for (int i = 0; i < kDraws; ++i) {
      values.push_back(draw_value(kind, "ABCDEFGH", random));
      const std::string& text = values.back().text;
      for (size_t at = 0; at < text.size(); ++at) ++next[text.substr(0, at)][text[at]];
    }
    RecallGuess guess;
    int looked_at = 0;
    for (const auto& [beginning, followers] : next) {
      int count = 0;
      int max_times = 0;
      for (const auto& [character, times] : followers) {
        count += times;
        max_times = std::max(max_times, times);
      }
      if (count < 1000) continue;
      const double right = guess.right(values.front(), beginning);
      // The most frequent of up to 26 equally likely followers is some three deviations above its probability.
      EXPECT_NEAR(static_cast<double>(max_times) / count, right, 4 * std::sqrt(right * (1 - right) / count) + 1e-12)
          << values.front().text << " " << beginning;
      ++looked_at;
    }
    EXPECT_GE(looked_at, kind == FactKind::signs ? 1 : 10);
  }
}

TEST(RecallValue, GuessesOfSomeBeginningsByHand) {
  RecallGuess guess;
  const RecallValue number{"1000", FactKind::numbers};
  EXPECT_DOUBLE_EQ(guess.right(number, ""), 1.0 / 9);
  EXPECT_DOUBLE_EQ(guess.right(number, "427"), 0.1);
  EXPECT_DOUBLE_EQ(guess.right({"K", FactKind::signs, "ABCD"}, ""), 0.25);
  const RecallValue thing{"worn lantern", FactKind::definitions};
  EXPECT_DOUBLE_EQ(guess.right(thing, "wor"), 1);
  EXPECT_DOUBLE_EQ(guess.right(thing, "w"), 1.0 / 3);  // worn, warm, wet
  const RecallValue name{"Tarvil", FactKind::names};
  EXPECT_DOUBLE_EQ(guess.right(name, ""), 2.0 / 19);  // B, D, S and T each begin two syllables of 19
  EXPECT_DOUBLE_EQ(guess.right(name, "K"), 0.2);
  EXPECT_DOUBLE_EQ(guess.right(name, "Ki"), guess.right(name, "Tro"));
}

// The chance that documents of a task report is that of their values.
TEST(RecallValue, DocumentsSayWhatGuessingGets) {
  const ByteTokenizer tokenizer;
  const auto filler = make_prose_filler(tokenizer);
  TaskConfig config{.task = "recall"};
  config.kinds = {FactKind::numbers};
  config.length = 20000;
  const auto document = make_task(config, {tokenizer, *filler, 1, 0}, "here")->document(0);
  std::vector<uint8_t> marks(20000);
  document->marks(0, 20000, marks.data());
  const auto recalled = static_cast<double>(std::count(marks.begin(), marks.end(), kCounted | kRecalled));
  ASSERT_TRUE(document->chance().has_value());
  // The end may cut one number off.
  EXPECT_NEAR(*document->chance(), recalled * (1.0 / 9 + 0.3) / 4, 0.3);
  EXPECT_GT(recalled, 400);
}

}  // namespace
}  // namespace quire
