// Tests that questions fill a length with any tokenizer.
#include <gtest/gtest.h>

#include "data/tasks/make_task.h"
#include "data/tasks/question.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/bpe_training.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "data/tokenizers/sentencepiece_tokenizer.h"
#include "tests/support/small_tokenizer.h"

namespace quire {
namespace {

std::vector<int32_t> ids_of(const TaskDocument& document) {
  std::vector<int32_t> ids(static_cast<size_t>(document.length()));
  document.tokens(0, document.length(), ids.data());
  return ids;
}

// The prompt and the reserve fill the length but for less than a unit, of which a line with two UUIDs is the longest
// with 124 bytes; documents to train on fill it exactly.
void expect_lengths(const Tokenizer& tokenizer, int64_t length) {
  const auto filler = make_prose_filler(tokenizer);
  const TaskSources sources{tokenizer, *filler, 7, 3};
  for (const std::string_view name : question_names()) {
    TaskConfig config{.task = std::string(name), .length = length};
    const auto document = make_asking_task(config, sources, "here")->ask(2);
    const int64_t used = 1 + document->answer_begin() + document->reserve();
    EXPECT_LE(used, length) << name;
    EXPECT_GT(used, length - 124) << name;
    EXPECT_LE(static_cast<int64_t>(document->answer().size()), document->reserve()) << name;
    EXPECT_EQ(document->score(tokenizer.decode(document->answer())), 1) << name;
    EXPECT_EQ(ids_of(*make_asking_task(config, sources, "here")->ask(2)), ids_of(*document)) << name;
    EXPECT_NE(ids_of(*make_asking_task(config, sources, "here")->ask(3)), ids_of(*document)) << name;

    // With chunks the prompt ends with the first position of one, and the document still has its length.
    config.align = 64;
    EXPECT_EQ(make_asking_task(config, sources, "here")->ask(2)->answer_begin() % 64, 0) << name;
    config.shortest = length / 4 * 3 / 64 * 64;
    const auto task = make_task(config, sources, "here");
    for (int64_t index = 0; index < 3; ++index) {
      const auto trained = task->document(index);
      ASSERT_EQ(trained->length() + 1, task->positions(index)) << name;
      std::vector<uint8_t> marks(static_cast<size_t>(trained->length()) + 1);
      trained->marks(0, trained->length() + 1, marks.data());
      const auto counted = std::count_if(marks.begin(), marks.end(), [](uint8_t mark) { return mark != 0; });
      EXPECT_GT(counted, trained->length() - 192) << name;  // all but filler after the answer, of less than 3 chunks
    }
  }
}

TEST(QuestionLengths, FitBytes) {
  expect_lengths(ByteTokenizer(), 3072);
  expect_lengths(ByteTokenizer(), 8192);
}

TEST(QuestionLengths, FitSentencePiece) {
  expect_lengths(SentencePieceTokenizer(test::small_sentencepiece()), 4096);
}

TEST(QuestionLengths, FitBytePairs) {
  const ByteTokenizer bytes;
  const auto filler = make_prose_filler(bytes);
  std::vector<int32_t> ids(20000);
  filler->open({.seed = 1, .task = 0, .index = 0})->tokens(0, 20000, ids.data());
  BpeTrainer trainer;
  trainer.add_text(bytes.decode(ids));
  trainer.end_document();
  expect_lengths(BpeTokenizer(trainer.train(500), 499, 499), 3072);
}

}  // namespace
}  // namespace quire
