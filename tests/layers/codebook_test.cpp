// Codebooks: moving averages once a step, beginnings from data, codewords that nobody uses, telemetry.
#include "layers/mixers/codebook.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/random_tensor.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kTokens = 6;
constexpr int64_t kSize = 3;
constexpr int64_t kCodes = 5;

struct Keys {
  Batch batch;
  Tensor keys, codes, mask;
};

// Two key heads; the last position of every other row is padding.
Keys keys_of(uint32_t seed) {
  std::vector<std::vector<int32_t>> segments(kRows, std::vector<int32_t>(kTokens, 0));
  segments[1][kTokens - 1] = segments[3][kTokens - 1] = -1;
  Keys keys{batch_of(segments, std::vector<uint8_t>(kRows, 0)), {}, {}, {}};
  RandomTensors random(seed);
  keys.keys = random.normal({kRows, kTokens, 2, kSize});
  keys.codes = random.integers({kRows, kTokens, 2}, 0, kCodes - 1);  // the last one is never used
  std::vector<uint8_t> mask;
  for (const int32_t segment : keys.batch.segment) mask.push_back(segment >= 0 ? 1 : 0);
  keys.mask = Tensor::from(mask, {kRows * kTokens});
  return keys;
}

class Book {
 public:
  explicit Book(const CodebookConfig& config)
      : codebook_(Scope(store_, declared_, DType::f64, "book"), config, 2, kCodes, kSize) {
    store_.allocate(DType::f64, kCpu, 1);
  }
  Codebook& operator*() { return codebook_; }
  Codebook* operator->() { return &codebook_; }
  std::vector<double> sum() const { return values_of(store_.buffers()[0].value); }
  std::vector<double> count() const { return values_of(store_.buffers()[1].value); }

  // A step in blocks of rows.
  void step(const Keys& keys, int64_t update, const std::vector<int64_t>& cuts, double apply = 1) {
    codebook_.begin_step(
        {.key = {9, static_cast<uint32_t>(update)}, .update = update, .rows = kRows, .length = kTokens});
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const int64_t begin = cuts[i];
      const int64_t end = cuts[i + 1];
      codebook_.count(keys.batch.row_block(begin, end), keys.keys.slice(0, begin, end), keys.codes.slice(0, begin, end),
                      keys.mask.slice(0, begin * kTokens, end * kTokens));
    }
    codebook_.update(Tensor::from(std::vector<double>{1, apply}, {2}));
  }

 private:
  ParameterStore store_;
  Declarations declared_;
  Codebook codebook_;
};

TEST(Codebook, LearnsTheSameFromBlocksOfRows) {
  Book whole({});
  Book blocks({});
  for (int64_t update = 1; update <= 3; ++update) {
    const Keys keys = keys_of(static_cast<uint32_t>(update));
    whole.step(keys, update, {0, kRows});
    blocks.step(keys, update, {0, 1, 3, kRows});
    EXPECT_EQ(whole.sum(), blocks.sum());
    EXPECT_EQ(whole.count(), blocks.count());
  }
}

TEST(Codebook, MovesByOnePartInAHundred) {
  Book book({});
  const std::vector<double> sum = book.sum();
  const std::vector<double> count = book.count();
  const Keys keys = keys_of(1);
  book.step(keys, 1, {0, kRows});
  const std::vector<double> values = values_of(keys.keys);
  const std::vector<int32_t> codes = keys.codes.to_vector<int32_t>();
  std::vector<double> expected_sum = sum;
  std::vector<double> expected_count = count;
  for (double& value : expected_sum) value *= 0.99;
  for (double& value : expected_count) value *= 0.99;
  for (int64_t i = 0; i < kRows * kTokens * 2; ++i) {
    if (keys.batch.segment[static_cast<size_t>(i / 2)] < 0) continue;
    const int64_t code = i % 2 * kCodes + codes[static_cast<size_t>(i)];
    expected_count[static_cast<size_t>(code)] += 0.01;
    for (int64_t d = 0; d < kSize; ++d) {
      expected_sum[static_cast<size_t>(code * kSize + d)] += 0.01 * values[static_cast<size_t>(i * kSize + d)];
    }
  }
  for (size_t i = 0; i < expected_sum.size(); ++i) EXPECT_NEAR(book.sum()[i], expected_sum[i], 1e-14);
  for (size_t i = 0; i < expected_count.size(); ++i) EXPECT_NEAR(book.count()[i], expected_count[i], 1e-14);
}

TEST(Codebook, StaysWhereAStepIsNotAppliedOrItIsFrozen) {
  Book skipped({});
  const std::vector<double> before = skipped.sum();
  skipped.step(keys_of(1), 1, {0, kRows}, 0);
  EXPECT_EQ(skipped.sum(), before);
  Book frozen({.frozen = true});
  frozen.step(keys_of(1), 1, {0, kRows});
  EXPECT_EQ(frozen.sum(), before);
  EXPECT_TRUE(frozen->sums().empty());
}

// Every codeword is a key of the first batch, whoever read its row; padding gives none.
TEST(Codebook, BeginsFromData) {
  const Keys keys = keys_of(4);
  Book book({.init = CodebookInitialization::data});
  Book blocks({.init = CodebookInitialization::data});
  const std::vector<double> before = book.sum();
  book.step(keys, 1, {0, kRows});
  blocks.step(keys, 1, {0, 2, kRows});
  EXPECT_EQ(book.sum(), blocks.sum());
  const std::vector<double> values = values_of(keys.keys);
  int found = 0;
  for (int64_t code = 0; code < 2 * kCodes; ++code) {
    for (int64_t i = code / kCodes; i < kRows * kTokens * 2; i += 2) {
      bool equal = true;
      for (int64_t d = 0; d < kSize; ++d) {
        equal =
            equal && book.sum()[static_cast<size_t>(code * kSize + d)] == values[static_cast<size_t>(i * kSize + d)];
      }
      if (!equal) continue;
      ++found;
      EXPECT_EQ(book.count()[static_cast<size_t>(code)], 1);
      EXPECT_GE(keys.batch.segment[static_cast<size_t>(i / 2)], 0);
      break;
    }
  }
  EXPECT_GE(found, 2 * kCodes - 2) << "some may fall on padding";
  EXPECT_NE(book.sum(), before);
  // From the second step on averages move.
  book.step(keys_of(5), 2, {0, kRows});
  EXPECT_LT(book.count()[kCodes - 1], 1);
}

TEST(Codebook, RoundsOfMeansTakeTheirOwnKeysAlone) {
  Book book({.init = CodebookInitialization::kmeans, .rounds = 2});
  book.step(keys_of(4), 1, {0, kRows});
  const Keys keys = keys_of(5);
  book.step(keys, 2, {0, kRows});
  std::vector<double> counts(2 * kCodes, 0);
  const std::vector<int32_t> codes = keys.codes.to_vector<int32_t>();
  for (size_t i = 0; i < codes.size(); ++i) {
    if (keys.batch.segment[i / 2] >= 0) counts[(i % 2) * kCodes + static_cast<size_t>(codes[i])] += 1;
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    EXPECT_EQ(book.count()[i], counts[i]);
  }
}

TEST(Codebook, UnusedCodewordsBeginAnew) {
  Book left({.decay = 0.5});
  Book reseeded({.decay = 0.5, .reseed = 0.4});
  for (int64_t update = 1; update <= 4; ++update) {
    left.step(keys_of(static_cast<uint32_t>(update)), update, {0, kRows});
    reseeded.step(keys_of(static_cast<uint32_t>(update)), update, {0, kRows});
  }
  EXPECT_NEAR(left.count()[kCodes - 1], std::pow(0.5, 4), 1e-15);
  EXPECT_GE(reseeded.count()[kCodes - 1], 0.4);
}

TEST(Codebook, TellsHowItIsUsed) {
  Book book({.decay = 0});
  book.step(keys_of(1), 1, {0, kRows});
  Telemetry telemetry;
  book->report(telemetry);
  const std::map<std::string, double> told(telemetry.begin(), telemetry.end());
  EXPECT_GT(told.at("book.perplexity"), 2);
  EXPECT_LE(told.at("book.perplexity"), kCodes - 1 + 1e-12) << "one codeword of each head is never used";
  EXPECT_EQ(told.at("book.dead"), 2);
  EXPECT_EQ(told.at("book.least_count"), 0);
  EXPECT_GE(told.at("book.largest_count"), 22.0 / (kCodes - 1));
}

}  // namespace
}  // namespace quire::test
