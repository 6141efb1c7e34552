// Tests documents that are read as one text: columns and windows.
#include <gtest/gtest.h>

#include <set>

#include "data/batches/batch_source.h"
#include "data/batches/columns.h"
#include "data/batches/windows.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

constexpr int32_t kBos = 256;
constexpr int32_t kEos = 257;

class StreamSampling : public testing::Test {
 protected:
  // The text is BOS a b c d e | BOS f g | BOS h, 11 positions.
  void SetUp() override {
    test::write_corpus(folder_ / "c.h5", {{"train", {"abcde", "fg", "h"}}});
    corpus_ = Corpus::open(folder_ / "c.h5");
  }
  BatchOptions options(Sampling sampling, int64_t subsequence, int64_t rows) const {
    return {.data = {.subsequence = subsequence, .rows = rows, .sampling = sampling}, .first_row = 0, .last_row = rows};
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(StreamSampling, ColumnsByHand) {
  BatchSource source(*corpus_, "train", options(Sampling::columns, 4, 2));
  for (int epoch = 0; epoch < 3; ++epoch) {
    const Batch first = source.next()->batch;
    EXPECT_EQ(first.tokens, (std::vector<int32_t>{kBos, 'a', 'b', 'c', kBos, 'f', 'g', kBos}));
    EXPECT_EQ(first.targets, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'f', 'g', kEos, 'h'}));
    EXPECT_EQ(first.segment, std::vector<int32_t>(8, 0));
    EXPECT_EQ(first.position, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(first.document, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 2}));
    EXPECT_EQ(first.starts, (std::vector<uint8_t>{1, 1}));
    EXPECT_EQ(first.target_count, 8);
    // The first column is one longer.
    const Batch second = source.next()->batch;
    EXPECT_EQ(second.tokens, (std::vector<int32_t>{'d', 'e', 0, 0, 'h', 0, 0, 0}));
    EXPECT_EQ(second.targets, (std::vector<int32_t>{'e', kEos, 0, 0, kEos, 0, 0, 0}));
    EXPECT_EQ(second.segment, (std::vector<int32_t>{0, 0, -1, -1, 0, -1, -1, -1}));
    EXPECT_EQ(second.position, (std::vector<int32_t>{4, 5, 0, 0, 4, 0, 0, 0}));
    EXPECT_EQ(second.starts, (std::vector<uint8_t>{0, 0}));
    EXPECT_EQ(second.loss_mask, (std::vector<uint8_t>{1, 1, 0, 0, 1, 0, 0, 0}));
  }
}

TEST_F(StreamSampling, FirstTokensCanBeLeftOut) {
  for (const Sampling sampling : {Sampling::columns, Sampling::windows}) {
    BatchOptions tested = options(sampling, 4, 2);
    tested.data.score_first_token = false;
    BatchSource source(*corpus_, "train", tested);
    for (int step = 0; step < 20; ++step) {
      const Batch batch = source.next()->batch;
      int64_t counted = 0;
      for (size_t i = 0; i < batch.tokens.size(); ++i) {
        EXPECT_EQ(batch.loss_mask[i], batch.segment[i] >= 0 && batch.tokens[i] != kBos ? 1 : 0);
        counted += batch.loss_mask[i];
      }
      EXPECT_EQ(batch.target_count, counted);
    }
  }
}

TEST_F(StreamSampling, AnEpochOfColumnsReadsEverythingOnce) {
  for (const int64_t rows : {1, 2, 3, 5, 11}) {
    for (const int64_t subsequence : {1, 2, 3, 7, 20}) {
      const BatchOptions tested = options(Sampling::columns, subsequence, rows);
      BatchSource source(*corpus_, "train", tested);
      const int64_t steps = Columns(corpus_->split("train").offsets(), tested).steps_per_epoch();
      std::vector<std::string> columns(static_cast<size_t>(rows));
      for (int64_t step = 0; step < steps; ++step) {
        const Batch batch = source.next()->batch;
        for (int64_t row = 0; row < rows; ++row) {
          EXPECT_EQ(batch.starts[static_cast<size_t>(row)], step == 0 ? 1 : 0);
          for (int64_t t = 0; t < subsequence; ++t) {
            const auto at = static_cast<size_t>(batch.at(row, t));
            if (batch.loss_mask[at] == 0) continue;
            std::string& column = columns[static_cast<size_t>(row)];
            EXPECT_EQ(batch.position[at], static_cast<int32_t>(column.size()));
            column += batch.targets[at] == kEos ? '.' : static_cast<char>(batch.targets[at]);
          }
        }
      }
      std::string all;
      for (const std::string& column : columns) all += column;
      EXPECT_EQ(all, "abcde.fg.h.") << rows << " rows of " << subsequence;
    }
  }
  EXPECT_ERROR(BatchSource(*corpus_, "train", options(Sampling::columns, 4, 12)), ErrorKind::config,
               "data.rows: 12 columns cannot be cut out of 11 positions");
}

TEST_F(StreamSampling, WindowsAreSlicesThatBeginAnywhere) {
  BatchSource source(*corpus_, "train", options(Sampling::windows, 4, 3));
  const std::string inputs = "<abcde<fg<h";
  const std::string targets = "abcde.fg.h.";
  std::set<size_t> begins;
  for (int step = 0; step < 60; ++step) {
    const Batch batch = source.next()->batch;
    EXPECT_EQ(batch.starts, (std::vector<uint8_t>{1, 1, 1}));
    EXPECT_EQ(batch.segment, std::vector<int32_t>(12, 0));
    EXPECT_EQ(batch.position, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(batch.target_count, 12);
    for (size_t row = 0; row < 3; ++row) {
      std::string read;
      std::string expected;
      for (size_t i = 4 * row; i < 4 * row + 4; ++i) {
        read += batch.tokens[i] == kBos ? '<' : static_cast<char>(batch.tokens[i]);
        expected += batch.targets[i] == kEos ? '.' : static_cast<char>(batch.targets[i]);
      }
      const size_t at = inputs.find(read);
      ASSERT_NE(at, std::string::npos) << read;
      EXPECT_EQ(expected, targets.substr(at, 4));
      begins.insert(at);
    }
  }
  EXPECT_EQ(begins.size(), 8U);  // all there are
}

TEST_F(StreamSampling, WindowsDependOnTheSeed) {
  BatchOptions tested = options(Sampling::windows, 3, 4);
  BatchSource one(*corpus_, "train", tested);
  BatchSource again(*corpus_, "train", tested);
  tested.seed = 2;
  BatchSource other(*corpus_, "train", tested);
  int differences = 0;
  for (int step = 0; step < 5; ++step) {
    const Batch batch = one.next()->batch;
    EXPECT_EQ(batch.tokens, again.next()->batch.tokens);
    differences += batch.tokens == other.next()->batch.tokens ? 0 : 1;
  }
  EXPECT_GT(differences, 2);
}

TEST_F(StreamSampling, AShortCorpusIsOneWindow) {
  BatchSource source(*corpus_, "train", options(Sampling::windows, 16, 1));
  const Batch batch = source.next()->batch;
  EXPECT_EQ(batch.target_count, 11);
  EXPECT_EQ(batch.segment[10], 0);
  EXPECT_EQ(batch.segment[11], -1);
}

}  // namespace
}  // namespace quire
