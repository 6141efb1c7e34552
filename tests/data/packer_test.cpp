#include "data/batches/packer.h"

#include <gtest/gtest.h>

#include "data/batches/dealing.h"
#include "data/corpus/corpus.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

constexpr int32_t kBos = 256;
constexpr int32_t kEos = 257;

class PackerTest : public testing::Test {
 protected:
  // Documents "abcde" (6 positions), "fg" (3) and "h" (2), in this order.
  void SetUp() override {
    test::write_corpus(folder_ / "c.h5", {{"train", {"abcde", "fg", "h"}}});
    corpus_ = Corpus::open(folder_ / "c.h5");
    options_ = {.data = {.subsequence = 4, .rows = 2, .pack = Pack::pad},
                .first_row = 0,
                .last_row = 2,
                .alignment = 1,
                .seed = 1,
                .shuffle = false,
                .endless = false};
  }

  std::vector<Batch> all_batches() {
    const Split& split = corpus_->split("train");
    const Dealing dealing(split.offsets(), options_);
    const Packer packer(split, corpus_->tokenizer(), options_);
    std::vector<Batch> batches;
    for (Cursor cursor = dealing.start(); !dealing.done(cursor);) batches.push_back(packer.pack(dealing.step(cursor)));
    return batches;
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
  BatchOptions options_;
};

TEST_F(PackerTest, PadByHand) {
  const std::vector<Batch> batches = all_batches();
  ASSERT_EQ(batches.size(), 2U);
  const Batch& first = batches[0];
  EXPECT_EQ(first.rows, 2);
  EXPECT_EQ(first.length, 4);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{kBos, 'a', 'b', 'c', kBos, 'f', 'g', 0}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'f', 'g', kEos, 0}));
  EXPECT_EQ(first.loss_mask, (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(first.segment, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0, -1}));
  EXPECT_EQ(first.position, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 0}));
  EXPECT_EQ(first.document, (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, -1}));
  EXPECT_EQ(first.names, (std::map<int64_t, std::string>{{0, "0"}, {1, "1"}}));
  EXPECT_EQ(first.row_block(1, 2).names, first.names);
  EXPECT_EQ(first.starts, (std::vector<uint8_t>{1, 1}));
  EXPECT_EQ(first.target_count, 7);

  const Batch& second = batches[1];
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{'d', 'e', 0, 0, kBos, 'h', 0, 0}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{'e', kEos, 0, 0, 'h', kEos, 0, 0}));
  EXPECT_EQ(second.position, (std::vector<int32_t>{4, 5, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(second.starts, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(second.target_count, 4);
}

TEST_F(PackerTest, ConcatByHand) {
  options_.data.subsequence = 8;
  options_.data.pack = Pack::concat;
  options_.data.rows = options_.last_row = 1;
  options_.alignment = 2;
  const std::vector<Batch> batches = all_batches();
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0].tokens, (std::vector<int32_t>{kBos, 'a', 'b', 'c', 'd', 'e', kBos, 'f'}));
  EXPECT_EQ(batches[0].targets, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', kEos, 'f', 'g'}));
  EXPECT_EQ(batches[0].segment, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batches[0].document, (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batches[0].starts, std::vector<uint8_t>{1});
  // One position of "fg" remains: the last token, whose target is EOS. The next document is aligned to 2.
  EXPECT_EQ(batches[1].tokens, (std::vector<int32_t>{'g', 0, kBos, 'h', 0, 0, 0, 0}));
  EXPECT_EQ(batches[1].targets, (std::vector<int32_t>{kEos, 0, 'h', kEos, 0, 0, 0, 0}));
  EXPECT_EQ(batches[1].loss_mask, (std::vector<uint8_t>{1, 0, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(batches[1].segment, (std::vector<int32_t>{0, -1, 1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(batches[1].position, (std::vector<int32_t>{2, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(batches[1].document, (std::vector<int64_t>{1, -1, 2, 2, -1, -1, -1, -1}));
  EXPECT_EQ(batches[1].starts, std::vector<uint8_t>{0});
}

// The target of BOS does not count; every other target does, wherever documents begin.
TEST_F(PackerTest, FirstTokensCanBeLeftOut) {
  options_.data.score_first_token = false;
  std::vector<Batch> batches = all_batches();
  EXPECT_EQ(batches[0].tokens, (std::vector<int32_t>{kBos, 'a', 'b', 'c', kBos, 'f', 'g', 0}));
  EXPECT_EQ(batches[0].targets, (std::vector<int32_t>{0, 'b', 'c', 'd', 0, 'g', kEos, 0}));
  EXPECT_EQ(batches[0].loss_mask, (std::vector<uint8_t>{0, 1, 1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(batches[0].target_count, 5);
  EXPECT_EQ(batches[1].loss_mask, (std::vector<uint8_t>{1, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(batches[1].target_count, 3);
  options_.data.subsequence = 8;
  options_.data.pack = Pack::concat;
  options_.data.rows = options_.last_row = 1;
  options_.alignment = 2;
  batches = all_batches();
  EXPECT_EQ(batches[0].loss_mask, (std::vector<uint8_t>{0, 1, 1, 1, 1, 1, 0, 1}));
  EXPECT_EQ(batches[0].target_count, 6);
  EXPECT_EQ(batches[1].loss_mask, (std::vector<uint8_t>{1, 0, 0, 1, 0, 0, 0, 0}));
}

TEST_F(PackerTest, IdleRowsAreEmpty) {
  options_.data.rows = options_.last_row = 5;
  const Batch batch = all_batches().front();
  for (int64_t r = 3; r < 5; ++r) {
    EXPECT_EQ(batch.starts[static_cast<size_t>(r)], 0);
    for (int64_t t = 0; t < 4; ++t) {
      EXPECT_EQ(batch.segment[static_cast<size_t>(batch.at(r, t))], -1);
      EXPECT_EQ(batch.document[static_cast<size_t>(batch.at(r, t))], -1);
    }
  }
}

TEST_F(PackerTest, OnePositionPerStep) {
  options_.data.subsequence = 1;
  options_.data.rows = options_.last_row = 1;
  std::string read;
  int64_t targets = 0;
  for (const Batch& batch : all_batches()) {
    targets += batch.target_count;
    if (batch.tokens[0] < 256) read += static_cast<char>(batch.tokens[0]);
    EXPECT_EQ(batch.starts[0], batch.tokens[0] == kBos ? 1 : 0);
  }
  EXPECT_EQ(read, "abcdefgh");
  EXPECT_EQ(targets, 11);
}

}  // namespace
}  // namespace quire
