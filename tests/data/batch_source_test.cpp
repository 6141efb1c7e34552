#include "data/batches/batch_source.h"

#include <gtest/gtest.h>

#include "data/batches/prefetcher.h"
#include "tests/support/batches.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::equal;
using test::take;

// Lengths chosen so that documents are shorter than, equal to and longer than a subsequence of 5 (one less with BOS).
const std::vector<int64_t> kLengths{1, 4, 5, 17, 2, 9, 3, 14, 30, 1, 8};

struct Way {
  std::string name;
  Sampling sampling = Sampling::documents;
  Pack pack = Pack::pad;
};

class BatchSourceTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    test::write_corpus(folder_ / "c.h5", {{"train", test::texts_of_lengths(kLengths)}});
    corpus_ = Corpus::open(folder_ / "c.h5");
  }

  BatchOptions options(int64_t rows) const {
    const bool concat = GetParam().pack == Pack::concat;
    return {
        .data = {.subsequence = concat ? 6 : 5, .rows = rows, .pack = GetParam().pack, .sampling = GetParam().sampling},
        .first_row = 0,
        .last_row = rows,
        .alignment = concat ? 2 : 1,
        .seed = 3,
        .shuffle = true,
        .endless = true};
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

const Way kPad{"pad"};
const Way kConcat{.name = "concat", .sampling = Sampling::documents, .pack = Pack::concat};
INSTANTIATE_TEST_SUITE_P(Ways, BatchSourceTest,
                         testing::Values(kPad, kConcat, Way{.name = "windows", .sampling = Sampling::windows},
                                         Way{.name = "columns", .sampling = Sampling::columns}),
                         [](const auto& tested) { return tested.param.name; });
using DocumentsTest = BatchSourceTest;
INSTANTIATE_TEST_SUITE_P(Packs, DocumentsTest, testing::Values(kPad, kConcat),
                         [](const auto& tested) { return tested.param.name; });

// 60 steps go through several epochs.
TEST_P(BatchSourceTest, ResumingAtEveryStepContinuesTheSameBatches) {
  BatchSource source(*corpus_, "train", options(4));
  const std::vector<CursoredBatch> all = take(source, 60);
  ASSERT_GT(all.back().after.next_place, 2 * corpus_->split("train").documents());  // steps, for windows and columns
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    // Through JSON, as a checkpoint stores it.
    const Cursor cursor = cursor_from_json(cursor_to_json(all[i].after));
    BatchSource resumed(*corpus_, "train", options(4), cursor);
    for (size_t j = i + 1; j < std::min(i + 4, all.size()); ++j) {
      ASSERT_TRUE(equal(*resumed.next(), all[j])) << "resumed after " << i << ", batch " << j;
    }
  }
}

TEST_P(BatchSourceTest, RanksMakeTheRowsOfTheWhole) {
  const int64_t bounds[] = {0, 3, 4, 7};  // uneven
  BatchSource whole(*corpus_, "train", options(7));
  std::vector<BatchSource> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    BatchOptions own = options(7);
    own.first_row = bounds[rank];
    own.last_row = bounds[rank + 1];
    ranks.emplace_back(*corpus_, "train", own);
  }
  for (int step = 0; step < 40; ++step) {
    const CursoredBatch all = *whole.next();
    for (int rank = 0; rank < 3; ++rank) {
      const CursoredBatch part = *ranks[static_cast<size_t>(rank)].next();
      ASSERT_TRUE(equal(part.batch, all.batch.row_block(bounds[rank], bounds[rank + 1]))) << step << " " << rank;
      ASSERT_EQ(part.after, all.after);
    }
  }
}

TEST_P(DocumentsTest, EvaluationReadsEveryDocumentExactlyOnce) {
  for (const int64_t rows : {1, 3, 8, 20}) {
    BatchOptions once = options(rows);
    once.shuffle = false;
    once.endless = false;
    BatchSource source(*corpus_, "train", once);
    std::vector<std::vector<int32_t>> seen(kLengths.size());  // targets in order
    for (const CursoredBatch& next : take(source, 1000)) {
      const Batch& batch = next.batch;
      for (size_t i = 0; i < batch.tokens.size(); ++i) {
        if (batch.loss_mask[i] == 0) continue;
        std::vector<int32_t>& targets = seen[static_cast<size_t>(batch.document[i])];
        ASSERT_EQ(batch.position[i], static_cast<int32_t>(targets.size()));
        ASSERT_EQ(batch.tokens[i], targets.empty() ? 256 : targets.back());
        targets.push_back(batch.targets[i]);
      }
    }
    const Split& split = corpus_->split("train");
    for (int64_t document = 0; document < split.documents(); ++document) {
      std::vector<int32_t> expected(static_cast<size_t>(split.length(document)));
      split.tokens(document, 0, split.length(document), expected.data());
      expected.push_back(257);
      EXPECT_EQ(seen[static_cast<size_t>(document)], expected) << "document " << document << ", rows " << rows;
    }
    EXPECT_FALSE(source.next().has_value());
  }
}

TEST_P(DocumentsTest, PrefetchedBatchesAreTheSame) {
  BatchSource source(*corpus_, "train", options(4));
  Prefetcher prefetcher(std::make_unique<BatchSource>(*corpus_, "train", options(4)));
  for (int step = 0; step < 50; ++step) ASSERT_TRUE(equal(*prefetcher.next(), *source.next())) << step;

  BatchOptions once = options(4);
  once.endless = false;
  BatchSource finite(*corpus_, "train", once);
  Prefetcher finite_prefetcher(std::make_unique<BatchSource>(*corpus_, "train", once), 1);
  const std::vector<CursoredBatch> expected = take(finite, 1000);
  const std::vector<CursoredBatch> got = take(finite_prefetcher, 1000);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(equal(got[i], expected[i]));
  EXPECT_FALSE(finite_prefetcher.next().has_value());
  EXPECT_FALSE(finite_prefetcher.next().has_value());
}

TEST_P(BatchSourceTest, ACursorOfAnotherRunIsRefused) {
  BatchSource source(*corpus_, "train", options(4));
  const Cursor cursor = source.next()->after;
  EXPECT_ERROR(BatchSource(*corpus_, "train", options(5), cursor), ErrorKind::checkpoint, "4 rows, the run has 5");
  Cursor impossible = cursor;
  impossible.rows[1] = {.place = cursor.next_place + 3, .offset = 1};
  EXPECT_ERROR(BatchSource(*corpus_, "train", options(4), impossible), ErrorKind::checkpoint, "the data cursor");
  impossible = cursor;
  impossible.next_place = -1;
  EXPECT_ERROR(BatchSource(*corpus_, "train", options(4), impossible), ErrorKind::checkpoint, "the data cursor");
  EXPECT_ERROR(BatchSource(*corpus_, "valid", options(4)), ErrorKind::config, "no split \"valid\"");
}

TEST_P(BatchSourceTest, ASubsequenceHoldsWholePeriods) {
  BatchOptions odd = options(4);
  odd.alignment = 4;
  EXPECT_ERROR(BatchSource(*corpus_, "train", odd), ErrorKind::config, "is not a multiple of 4");
}

class FailingStream : public BatchStream {
 public:
  std::optional<CursoredBatch> next() override {
    if (++calls_ == 3) throw Error(ErrorKind::data, "the third batch is bad");
    CursoredBatch batch;
    batch.after.next_place = calls_;
    return batch;
  }

 private:
  int64_t calls_ = 0;
};

TEST(Prefetcher, ThrowsTheSourcesErrorInItsPlace) {
  Prefetcher prefetcher(std::make_unique<FailingStream>());
  EXPECT_EQ(prefetcher.next()->after.next_place, 1);
  EXPECT_EQ(prefetcher.next()->after.next_place, 2);
  EXPECT_ERROR(prefetcher.next(), ErrorKind::data, "the third batch is bad");
  EXPECT_ERROR(prefetcher.next(), ErrorKind::data, "the third batch is bad");
}

TEST(Prefetcher, EndsCleanlyWhereverTheThreadIs) {
  for (int taken = 0; taken < 4; ++taken) {
    for (int round = 0; round < 20; ++round) {
      Prefetcher prefetcher(std::make_unique<FailingStream>(), 1);
      for (int i = 0; i < std::min(taken, 2); ++i) (void)prefetcher.next();
      if (taken == 3) {
        EXPECT_THROW((void)prefetcher.next(), Error);
      }
    }
  }
}

}  // namespace
}  // namespace quire
