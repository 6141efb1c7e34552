#include "data/batches/mixture.h"

#include <gtest/gtest.h>

#include <map>

#include "data/batches/batch_source.h"
#include "data/tasks/make_task.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/batches.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::equal;
using test::take;

class MixtureTest : public testing::TestWithParam<Pack> {
 protected:
  void SetUp() override {
    test::write_corpus(folder_ / "c.h5", {{"train", test::texts_of_lengths({40, 3, 170, 12, 90})}});
    corpus_ = Corpus::open(folder_ / "c.h5");
    filler_ = make_prose_filler(tokenizer_);
  }

  MixturePart task(const std::string& text, double weight, uint32_t number) const {
    MixturePart part;
    part.weight = weight;
    part.task = std::make_unique<TaskDocuments>(
        make_task(parse_config<TaskConfig>(text, "task"), {tokenizer_, *filler_, 3, number}, "here"), 8);
    return part;
  }
  MixturePart books(double weight) const {
    MixturePart part;
    part.weight = weight;
    part.split = &corpus_->split("train");
    return part;
  }
  std::shared_ptr<const Mixture> mixture() const {
    std::vector<MixturePart> parts;
    parts.push_back(books(1));
    parts.push_back(task("{task: passkey, length: 200, shortest: 80, loss: answer}", 1, 1));
    parts.push_back(task("{task: recall, length: 300, nearest: 60, farthest: 100}", 2, 2));
    return std::make_shared<Mixture>(std::move(parts), 3);
  }
  BatchOptions options(int64_t rows) const {
    return {.data = {.subsequence = 16, .rows = rows, .pack = GetParam()},
            .first_row = 0,
            .last_row = rows,
            .alignment = GetParam() == Pack::concat ? 4 : 1,
            .seed = 3};
  }

  test::TemporaryDirectory folder_;
  ByteTokenizer tokenizer_;
  std::unique_ptr<Corpus> corpus_;
  std::unique_ptr<Filler> filler_;
};
INSTANTIATE_TEST_SUITE_P(Packs, MixtureTest, testing::Values(Pack::pad, Pack::concat),
                         [](const auto& tested) { return tested.param == Pack::pad ? "pad" : "concat"; });

TEST_P(MixtureTest, ThreeRanksMakeTheRowsOfOne) {
  const int64_t bounds[] = {0, 3, 4, 7};  // uneven
  BatchSource whole(mixture(), tokenizer_, options(7));
  std::vector<BatchSource> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    BatchOptions own = options(7);
    own.first_row = bounds[rank];
    own.last_row = bounds[rank + 1];
    ranks.emplace_back(mixture(), tokenizer_, own);
  }
  for (int step = 0; step < 60; ++step) {
    const CursoredBatch all = *whole.next();
    for (int rank = 0; rank < 3; ++rank) {
      const CursoredBatch part = *ranks[static_cast<size_t>(rank)].next();
      EXPECT_EQ(part.after, all.after);
      const Batch expected = all.batch.row_block(bounds[rank], bounds[rank + 1]);
      ASSERT_EQ(part.batch.tokens, expected.tokens) << step;
      ASSERT_EQ(part.batch.targets, expected.targets);
      ASSERT_EQ(part.batch.loss_mask, expected.loss_mask);
      ASSERT_EQ(part.batch.recalled, expected.recalled);
      ASSERT_EQ(part.batch.document, expected.document);
      ASSERT_EQ(part.batch.target_count, expected.target_count);
    }
  }
}

// Documents of corpora and of tasks, whose marks leave out others too.
TEST_P(MixtureTest, FirstTokensCanBeLeftOut) {
  BatchOptions masked = options(4);
  masked.data.score_first_token = false;
  BatchSource every(mixture(), tokenizer_, options(4));
  BatchSource source(mixture(), tokenizer_, masked);
  int64_t left_out = 0;
  for (int step = 0; step < 60; ++step) {
    const Batch all = every.next()->batch;
    const Batch batch = source.next()->batch;
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      const bool first = batch.segment[i] >= 0 && batch.position[i] == 0;
      ASSERT_EQ(batch.loss_mask[i], first ? 0 : all.loss_mask[i]);
      ASSERT_EQ(batch.targets[i], first ? 0 : all.targets[i]);
      ASSERT_EQ(batch.recalled[i], first ? 0 : all.recalled[i]);
      left_out += all.loss_mask[i] - batch.loss_mask[i];
    }
    left_out -= all.target_count - batch.target_count;
  }
  EXPECT_EQ(left_out, 0);
}

TEST_P(MixtureTest, ResumingAtEveryStepContinuesTheSameBatches) {
  BatchSource source(mixture(), tokenizer_, options(4));
  const std::vector<CursoredBatch> all = take(source, 60);
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    BatchSource resumed(mixture(), tokenizer_, options(4), cursor_from_json(cursor_to_json(all[i].after)));
    for (size_t j = i + 1; j < std::min(i + 4, all.size()); ++j) {
      const CursoredBatch next = *resumed.next();
      ASSERT_TRUE(equal(next, all[j])) << "resumed after " << i << ", batch " << j;
      ASSERT_EQ(next.batch.recalled, all[j].batch.recalled);
    }
  }
  Cursor impossible = all[5].after;
  impossible.rows[0] = {.place = 0, .offset = 100000};
  EXPECT_ERROR(BatchSource(mixture(), tokenizer_, options(4), impossible), ErrorKind::checkpoint, "does not fit");
}

// Weights are shares of positions, although documents of one part are much longer than those of another.
TEST_P(MixtureTest, PartsHaveTheirShareOfThePositions) {
  std::vector<MixturePart> parts;
  parts.push_back(books(1));
  parts.push_back(task("{task: passkey, length: 2000}", 2, 1));
  parts.push_back(task("{task: passkey, length: 100}", 1, 2));
  const Mixture mixture(std::move(parts), 3);
  std::map<int64_t, double> positions;
  std::map<int64_t, int64_t> next;
  std::map<int64_t, int64_t> seen;
  for (int64_t place = 0; place < 50000; ++place) {
    const int64_t document = mixture.document(place);
    const int64_t part = mixture.part_of(document);
    positions[part] += static_cast<double>(mixture.tokens_with_bos(document));
    ++next[part];
    if (part == 0) ++seen[document];
  }
  const double total = positions[0] + positions[1] + positions[2];
  EXPECT_NEAR(positions[0] / total, 0.25, 0.01);
  EXPECT_NEAR(positions[1] / total, 0.5, 0.01);
  EXPECT_NEAR(positions[2] / total, 0.25, 0.01);
  // Every document of the corpus as often as any other, for all blocks that were read to their end.
  for (const auto& [document, count] : seen) EXPECT_NEAR(static_cast<double>(count), next[0] / 5.0, 0.03 * next[0]);
}

// A whole block uses every document of a task once.
TEST(Mixture, NoDocumentOfATaskComesTwice) {
  const ByteTokenizer tokenizer;
  const auto filler = make_prose_filler(tokenizer);
  std::vector<MixturePart> parts(2);
  for (uint32_t i = 0; i < 2; ++i) {
    parts[i].task = std::make_unique<TaskDocuments>(
        make_task(parse_config<TaskConfig>("{task: passkey, length: 100}", "task"), {tokenizer, *filler, 3, i}, "here"),
        4);
  }
  const Mixture mixture(std::move(parts), 5);
  const int64_t block = int64_t{1} << 16;
  std::vector<bool> seen(static_cast<size_t>(block) * 2 + 2);
  for (int64_t place = 0; place < block; ++place) {
    const auto document = static_cast<size_t>(mixture.document(place));
    ASSERT_LT(document, static_cast<size_t>(block));
    ASSERT_FALSE(seen[document]) << place;
    seen[document] = true;
  }
  EXPECT_EQ(mixture.number_in_part(mixture.document(block)) >= block / 2, true);
}

}  // namespace
}  // namespace quire
