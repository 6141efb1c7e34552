#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/config/config.h"
#include "data/tasks/make_task.h"
#include "data/tasks/needle_task.h"
#include "data/tasks/prose.h"
#include "data/tasks/task_documents.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

TaskConfig config_of(const std::string& text) {
  return parse_config<TaskConfig>(text, "task");
}

class TasksTest : public testing::Test {
 protected:
  std::unique_ptr<Task> task(const std::string& text, uint64_t seed = 5, uint32_t number = 0) const {
    return make_task(config_of(text), {tokenizer_, *filler_, seed, number}, "here");
  }
  std::unique_ptr<NeedleDocument> needle(const std::string& text, int64_t index = 0) const {
    return NeedleTask(config_of(text), {tokenizer_, *filler_, 5, 0}, "here").needle(index);
  }
  std::string text_of(const TaskDocument& document) const {
    std::vector<int32_t> ids(static_cast<size_t>(document.length()));
    document.tokens(0, document.length(), ids.data());
    return tokenizer_.decode(ids);
  }
  // The text of the targets that have a mark; EOS is '$'.
  std::string marked(const TaskDocument& document, uint8_t mark) const {
    std::vector<uint8_t> marks(static_cast<size_t>(document.length()) + 1);
    document.marks(0, document.length() + 1, marks.data());
    const std::string text = text_of(document) + "$";
    std::string found;
    for (size_t i = 0; i < marks.size(); ++i) {
      if ((marks[i] & mark) != 0) found += text[i];
    }
    return found;
  }

  ByteTokenizer tokenizer_;
  std::unique_ptr<Filler> filler_ = make_prose_filler(tokenizer_);
};

TEST_F(TasksTest, APasskeyIsHiddenAskedForAndAnswered) {
  const auto document = needle("{task: passkey, length: 400}");
  const std::string text = text_of(*document);
  ASSERT_EQ(text.size(), 399U);  // with BOS 400 positions
  const std::string key = tokenizer_.decode(document->answer());
  EXPECT_EQ(key.size(), 5U);
  EXPECT_EQ(key.find_first_not_of("0123456789"), std::string::npos);
  EXPECT_EQ(text.find("|The passkey is:" + key + "|"), static_cast<size_t>(document->needle_begin()));
  EXPECT_TRUE(text.ends_with("|What is the passkey? The passkey is" + key));
  EXPECT_EQ(document->answer_begin(), 394);
  // Everything up to the end of the answer counts, EOS does not.
  EXPECT_EQ(marked(*document, kCounted), text);
  EXPECT_EQ(marked(*document, kRecalled), key);
  EXPECT_EQ(marked(*needle("{task: passkey, length: 400, loss: answer}"), kCounted), key);
}

// The question ends with the first position of the last chunk, and no needle is in the last two.
TEST_F(TasksTest, AlignedQuestionsEndWithTheFirstTokenOfTheLastChunk) {
  for (int64_t index = 0; index < 50; ++index) {
    const auto document = needle("{task: passkey, length: 512, align: 64}", index);
    const std::string text = text_of(*document);
    const std::string key = tokenizer_.decode(document->answer());
    const std::string question = "The passkey is" + key;
    const size_t at = text.rfind(question) + question.size() - key.size();  // stored token of the answer
    EXPECT_EQ((at + 1) - 1, 512U - 64U);                                    // position of the question's last token
    EXPECT_EQ(static_cast<int64_t>(at), document->answer_begin());
    EXPECT_LE(document->needle_begin() + 1 + 22, 512 - 2 * 64);
    EXPECT_EQ(marked(*document, kCounted), text.substr(0, at + 5));  // the filler after the answer does not count
  }
}

TEST_F(TasksTest, DepthPlacesTheNeedle) {
  EXPECT_EQ(needle("{task: passkey, length: 1000, depth: 0}")->needle_begin(), 0);
  const auto last = needle("{task: passkey, length: 1000, depth: 1}");
  EXPECT_EQ(text_of(*last).find("||What is the passkey?"), static_cast<size_t>(last->needle_begin()) + 21);
  const auto middle = needle("{task: multikey, length: 2001, depth: 0.5, keys: 2}");
  EXPECT_NEAR(static_cast<double>(middle->needle_begin()), 930, 70);
  // Without a depth, the whole document is used.
  int64_t min_begin = 1000;
  int64_t max_begin = 0;
  for (int64_t index = 0; index < 200; ++index) {
    const int64_t begin = needle("{task: passkey, length: 1000}", index)->needle_begin();
    min_begin = std::min(min_begin, begin);
    max_begin = std::max(max_begin, begin);
  }
  EXPECT_LT(min_begin, 50);
  EXPECT_GT(max_begin, 880);
}

TEST_F(TasksTest, MultikeyAsksForOneOfItsKeys) {
  const auto document = needle("{task: multikey, length: 2000, keys: 6}");
  const std::string text = text_of(*document);
  size_t needles = 0;
  for (size_t at = 0; (at = text.find("|One of the special", at)) != std::string::npos; ++at) ++needles;
  EXPECT_EQ(needles, 6U);
  const size_t asked = text.find("|What is the special magic number for ") + 38;
  const std::string label = text.substr(asked, text.find('?') - asked);
  const std::string key = tokenizer_.decode(document->answer());
  EXPECT_NE(text.find("numbers for " + label + " is:" + key + "|"), std::string::npos) << label;
  EXPECT_TRUE(text.ends_with("The special magic number is" + key));
}

TEST_F(TasksTest, HopsFollowAChain) {
  const auto document = needle("{task: 'hops:3', length: 1000, keys: 2, key: 4}");
  const std::string text = text_of(*document);
  const std::string answer = tokenizer_.decode(document->answer());
  ASSERT_EQ(answer.size(), 14U);  // three variables of four, two commas
  EXPECT_EQ(document->scored(), 13);
  std::string from = text.substr(text.find("|The path from ") + 15, 4);
  for (size_t hop = 0; hop < 3; ++hop) {
    const std::string to = answer.substr(hop * 5, 4);
    EXPECT_NE(text.find(fmt::format("|DEF{}->{}|", from, to)), std::string::npos) << from << " " << to;
    from = to;
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), '>'), 6);
  EXPECT_EQ(marked(*document, kRecalled), answer.substr(0, 4) + answer.substr(5, 4) + answer.substr(10, 4));
}

TEST_F(TasksTest, RecalledWordsWereSaidLongBefore) {
  for (const char* options : {"{task: recall, length: 6000, nearest: 300, farthest: 700, facts: 6}",
                              "{task: recall, length: 6000, nearest: 300, farthest: 700, kinds: [signs], facts: 3}"}) {
    const auto document = task(options)->document(3);
    const std::string text = text_of(*document);
    std::vector<uint8_t> marks(text.size() + 1);
    document->marks(0, static_cast<int64_t>(marks.size()), marks.data());
    EXPECT_EQ(marked(*document, kCounted), text + "$");
    int64_t runs = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      if ((marks[i] & kRecalled) == 0 || (marks[i - 1] & kRecalled) != 0) continue;
      size_t end = i;
      while ((marks[end] & kRecalled) != 0) ++end;
      if (text.substr(i - 20, 20).find(", that ") != std::string::npos) continue;  // may be said of another word, too
      // The value and the word before it occurred earlier, but not within the last 300 tokens.
      const size_t before = text.find_last_of(" \n", text[i - 1] == ' ' ? i - 2 : i - 1);
      const std::string said = text.substr(before + 1, end - before - 1);
      const size_t last = text.rfind(said, before);
      ASSERT_NE(last, std::string::npos) << said;
      EXPECT_GE(before - last, 280U) << said;
      ++runs;
      i = end;
    }
    EXPECT_GT(runs, 10);
  }
}

// Any part of any document, in any order, gives the same tokens.
TEST_F(TasksTest, DocumentsFollowFromSeedTaskAndIndexAlone) {
  for (const char* options : {"{task: passkey, length: 9000}", "{task: multikey, length: 9000, shortest: 1500}",
                              "{task: 'hops:2', length: 9000}", "{task: recall, length: 9000, shortest: 2000}"}) {
    const auto one = task(options);
    const auto other = task(options);
    EXPECT_NE(text_of(*one->document(7)), text_of(*one->document(8)));
    EXPECT_NE(text_of(*one->document(7)), text_of(*task(options, 6)->document(7)));
    EXPECT_NE(text_of(*one->document(7)), text_of(*task(options, 5, 1)->document(7)));
    const auto document = other->document(7);
    const std::string text = text_of(*one->document(7));
    ASSERT_EQ(static_cast<int64_t>(text.size()), one->positions(7) - 1);
    for (int64_t begin = document->length(); begin > 0;) {
      const int64_t count = std::min<int64_t>(begin, 701);
      begin -= count;
      std::vector<int32_t> ids(static_cast<size_t>(count));
      document->tokens(begin, count, ids.data());
      ASSERT_EQ(tokenizer_.decode(ids), text.substr(static_cast<size_t>(begin), static_cast<size_t>(count))) << begin;
    }
  }
}

TEST_F(TasksTest, LengthsAreDrawnByOctaves) {
  const auto drawn = task("{task: passkey, length: 8192, shortest: 512, align: 64}");
  int64_t short_ones = 0;
  double sum = 0;
  for (int64_t index = 0; index < 1000; ++index) {
    const int64_t positions = drawn->positions(index);
    ASSERT_EQ(positions % 64, 0);
    ASSERT_TRUE(positions >= 512 && positions <= 8192) << positions;
    short_ones += positions < 2048 ? 1 : 0;
    sum += static_cast<double>(positions);
  }
  EXPECT_NEAR(static_cast<double>(short_ones), 500, 60);
  EXPECT_NEAR(sum / 1000, drawn->mean_positions(), 200);
}

TEST_F(TasksTest, FillerComesFromACorpus) {
  const test::TemporaryDirectory folder;
  test::write_corpus(folder / "c.h5", {{"train", test::texts_of_lengths({40, 3, 17})}});
  const std::unique_ptr<Corpus> corpus = Corpus::open(folder / "c.h5");
  const std::unique_ptr<Filler> filler = make_corpus_filler(corpus->split("train"));
  const NeedleTask task(config_of("{task: passkey, length: 300}"), {tokenizer_, *filler, 5, 0}, "here");
  const auto document = task.needle(2);
  std::string text = text_of(*document);
  text.erase(static_cast<size_t>(document->needle_begin()), 22);
  // The letters of the corpus run on, over its 60 tokens and again.
  std::string all;
  for (const std::string& one : test::texts_of_lengths({40, 3, 17})) all += one;
  const size_t start = (all + all).find(text.substr(0, 60));
  ASSERT_NE(start, std::string::npos);
  for (size_t i = 0; i < text.find('|'); ++i) ASSERT_EQ(text[i], all[(start + i) % all.size()]) << i;
}

TEST_F(TasksTest, WhatCannotBeIsRefused) {
  EXPECT_ERROR(task("{task: passkey, length: 50}"), ErrorKind::config,
               "here: length 50 is too short for task passkey, which needs at least 64 with this tokenizer");
  EXPECT_NO_THROW(task("{task: passkey, length: 64}")->document(0));
  EXPECT_ERROR(task("{task: passkey, length: 64, align: 4}"), ErrorKind::config, "align 4 is too short");
  EXPECT_ERROR(task("{task: multikey, length: 5000, key: 1, keys: 11}"), ErrorKind::config, "cannot differ");
  EXPECT_ERROR(task("{task: 'hops:4', length: 5000, key: 1, keys: 3}"), ErrorKind::config, "15 variables of 1 symbols");
  EXPECT_ERROR(task("{task: recall, length: 500}"), ErrorKind::config, "come back after 512 tokens");
  EXPECT_ERROR(config_of("{task: 'hops:0'}"), ErrorKind::config, "\"hops:0\" is no task");
  EXPECT_ERROR(config_of("{task: passkeys}"), ErrorKind::config, "is no task; there is: passkey, multikey, hops:N");
  EXPECT_ERROR(config_of("{task: passkey, keys: 2}"), ErrorKind::config, "task passkey has one key");
  EXPECT_ERROR(config_of("{task: recall, key: 2}"), ErrorKind::config, "task recall has no needles");
  EXPECT_ERROR(config_of("{task: recall, kinds: [signs], facts: 4}"), ErrorKind::config, "not be above 3 with signs");
  EXPECT_ERROR(config_of("{task: recall, kinds: []}"), ErrorKind::config, "needs at least one kind");
  EXPECT_ERROR(config_of("{task: multikey, facts: 2}"), ErrorKind::config, "only task recall has it");
  EXPECT_ERROR(config_of("{length: 2000}"), ErrorKind::config, "it belongs to a task");
  EXPECT_ERROR(config_of("{task: passkey, length: 100, align: 64}"), ErrorKind::config, "not a multiple of align");
  EXPECT_ERROR(config_of("{task: passkey, length: 100, shortest: 200}"), ErrorKind::config, "not be above length");
  EXPECT_ERROR(config_of("{task: recall, nearest: 100, farthest: 50}"), ErrorKind::config, "not be below nearest");
}

// Every key is refused that another length would just hold: documents at the shortest length can always be made.
TEST_F(TasksTest, TheShortestLengthHoldsEveryDocument) {
  for (const char* options :
       {"{task: passkey, length: 4096}", "{task: multikey, length: 4096, keys: 5}",
        "{task: multikey, length: 4096, keys: 3, align: 32}", "{task: 'hops:2', length: 4096, keys: 3, align: 16}"}) {
    TaskConfig config = config_of(options);
    config.length = NeedleTask(config, {tokenizer_, *filler_, 1, 0}, "here").min_positions();
    const NeedleTask shortest(config, {tokenizer_, *filler_, 1, 0}, "here");
    for (int64_t index = 0; index < 50; ++index) EXPECT_EQ(shortest.needle(index)->length(), config.length - 1);
  }
}

}  // namespace
}  // namespace quire
