#include "data/tasks/task_corpus.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/tasks/make_task.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/handmade_corpus.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

class TaskCorpusTest : public testing::Test {
 protected:
  TaskCorpusOptions options(const std::string& task) const {
    return {.task = parse_config<TaskConfig>(task, "task"),
            .splits = {"train=3", "valid=2"},
            .seed = 9,
            .filler = "",
            .tokenizer = "byte",
            .output = folder_ / "c.h5",
            .force = true};
  }
  test::TemporaryDirectory folder_;
};

TEST_F(TaskCorpusTest, HoldsTheDocumentsOfTheTaskWithTheirMarks) {
  for (const char* text : {"{task: recall, length: 3000, nearest: 200, farthest: 400}",
                           "{task: multikey, length: 70000, shortest: 900}"}) {
    const TaskCorpusOptions given = options(text);
    int64_t calls = 0;
    const PrepareReport report = prepare_task_corpus(given, [&calls](int64_t, int64_t) { ++calls; });
    EXPECT_EQ(calls, 5);
    EXPECT_EQ(report.splits.at("train").totals.documents, 3);
    const std::unique_ptr<Corpus> corpus = Corpus::open(given.output);
    const ByteTokenizer tokenizer;
    const auto filler = make_prose_filler(tokenizer);
    const auto task = make_task(given.task, {tokenizer, *filler, 9, hash_scope("prepare")}, "here");
    for (int64_t index = 0; index < 5; ++index) {
      const Split& split = corpus->split(index < 3 ? "train" : "valid");
      const int64_t document = index < 3 ? index : index - 3;
      const auto made = task->document(index);
      ASSERT_TRUE(split.marked());
      ASSERT_EQ(split.length(document), made->length());
      const auto length = static_cast<size_t>(made->length());
      std::vector<int32_t> ids(length);
      std::vector<int32_t> expected(length);
      split.tokens(document, 0, made->length(), ids.data());
      made->tokens(0, made->length(), expected.data());
      EXPECT_EQ(ids, expected);
      std::vector<uint8_t> marks(length + 1);
      std::vector<uint8_t> expected_marks(length + 1);
      split.marks(document, 0, made->length() + 1, marks.data());
      made->marks(0, made->length() + 1, expected_marks.data());
      EXPECT_EQ(marks, expected_marks);
      EXPECT_EQ(split.chance(document), made->chance());
    }
  }
}

TEST_F(TaskCorpusTest, FillerComesFromACorpusWithItsTokenizer) {
  test::write_corpus(folder_ / "books.h5", {{"valid", {"xyzzy xyzzy. ", "plugh"}}});
  TaskCorpusOptions given = options("{task: passkey, length: 400}");
  given.filler = (folder_ / "books.h5").string() + ":valid";
  prepare_task_corpus(given, {});
  const auto corpus = Corpus::open(given.output);
  std::vector<int32_t> ids(399);
  corpus->split("train").tokens(0, 0, 399, ids.data());
  EXPECT_NE(corpus->tokenizer().decode(ids).find("xyzzy. plughxyzzy"), std::string::npos);
  given.filler = (folder_ / "books.h5").string();
  EXPECT_ERROR(prepare_task_corpus(given, {}), ErrorKind::config, "no split \"train\"");
  given.filler = (folder_ / "none.h5").string();
  EXPECT_ERROR(prepare_task_corpus(given, {}), ErrorKind::data, "none.h5: no such corpus");
}

TEST_F(TaskCorpusTest, WrongSplitsAreRefused) {
  for (const char* split : {"train=0.5", "train=0", "train=books/", "train", "=4", "train=-2"}) {
    TaskCorpusOptions given = options("{task: passkey}");
    given.splits = {split};
    EXPECT_ERROR(prepare_task_corpus(given, {}), ErrorKind::config, "it is NAME=COUNT");
  }
  TaskCorpusOptions given = options("{task: passkey}");
  given.splits = {"a=1", "a=2"};
  EXPECT_ERROR(prepare_task_corpus(given, {}), ErrorKind::config, "split a is given twice");
  given.splits.clear();
  EXPECT_ERROR(prepare_task_corpus(given, {}), ErrorKind::config, "--task needs --split NAME=COUNT");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c.h5"));
}

TEST_F(TaskCorpusTest, MarksThatDoNotFitTheTokensAreRefused) {
  test::HandmadeCorpus handmade;
  handmade.marks = Tensor::from<uint8_t>({1, 1, 1}, {3});  // five targets with EOS
  handmade.write(folder_ / "c.h5");
  EXPECT_ERROR(Corpus::open(folder_ / "c.h5"), ErrorKind::data, "the marks do not fit the tokens");
  handmade.marks = Tensor::from<uint8_t>({1, 3, 1, 0, 1}, {5});
  handmade.write(folder_ / "c.h5");
  EXPECT_TRUE(Corpus::open(folder_ / "c.h5")->split("train").marked());
  EXPECT_EQ(Corpus::open(folder_ / "c.h5")->split("train").chance(0), std::nullopt);
}

TEST_F(TaskCorpusTest, ChancesThatDoNotFitTheDocumentsAreRefused) {
  test::HandmadeCorpus handmade;
  const auto refused = [&](const std::string& message) {
    handmade.write(folder_ / "c.h5");
    EXPECT_ERROR(Corpus::open(folder_ / "c.h5"), ErrorKind::data, message);
  };
  handmade.chance = Tensor::from<double>({0.5, 0}, {2});
  refused("the chances do not fit the documents");  // without marks
  handmade.marks = Tensor::from<uint8_t>({1, 3, 1, 0, 1}, {5});
  handmade.write(folder_ / "c.h5");
  EXPECT_EQ(Corpus::open(folder_ / "c.h5")->split("train").chance(0), 0.5);
  handmade.chance = Tensor::from<double>({0.5}, {1});
  refused("the chances do not fit the documents");
  handmade.chance = Tensor::from<float>({0.5, 0}, {2});
  refused("the chances do not fit the documents");
  handmade.chance = Tensor::from<double>({0.5, std::nan("")}, {2});
  refused("there is a chance that is no number from 0 on");
}

}  // namespace
}  // namespace quire
