// BM25: a worked example, chunks that are no longer known, and what does not change with what comes later.
#include "layers/stacks/bm25.h"

#include <gtest/gtest.h>

namespace quire::test {
namespace {

using Tokens = std::vector<int32_t>;

// Scores of all chunks for a query behind them.
std::vector<double> scores(const Bm25Config& config, int64_t window, const std::vector<Tokens>& chunks,
                           const Tokens& query) {
  Bm25 index(config, window);
  for (const Tokens& chunk : chunks) index.add(chunk);
  const auto count = static_cast<int64_t>(chunks.size());
  return index.scores(query, count, 0, count);
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

const std::vector<Tokens> kChunks{{1, 2, 3, 1}, {4, 2, 5, 6}, {1, 1, 7, 2}, {8, 9, 3, 3}};
const Tokens kQuery{1, 2, 3, 10, 1};

TEST(Bm25, WorkedExample) {
  expect_near(scores({}, 100, kChunks, kQuery), {2.002899, 0.356675, 1.309752, 0.953077});
  expect_near(scores({.repeated = true}, 100, kChunks, kQuery), {2.955977, 0.356675, 2.262830, 0.953077});
}

TEST(Bm25, OnlyTheLastChunksAreKnown) {
  const std::vector<double> all = scores({}, 2, kChunks, kQuery);
  const std::vector<double> last = scores({}, 2, {kChunks[2], kChunks[3]}, kQuery);
  expect_near(all, {0, 0, last[0], last[1]});
}

TEST(Bm25, LongChunksCountLess) {
  const std::vector<Tokens> chunks{{1, 2}, {1, 2, 3, 4, 5, 6}, {7, 8}};
  const std::vector<double> unlike = scores({}, 9, chunks, {1});
  EXPECT_GT(unlike[0], unlike[1]);
  EXPECT_EQ(unlike[2], 0);
  const std::vector<double> alike = scores({.b = 0}, 9, chunks, {1});
  EXPECT_EQ(alike[0], alike[1]);
}

// The scores of a query behind some chunks are the same for any part of them, and whatever chunks come later.
TEST(Bm25, PartsAndLaterChunksChangeNothing) {
  Bm25 index({}, 2);
  for (const Tokens& chunk : kChunks) index.add(chunk);
  for (int64_t before = 0; before <= 4; ++before) {
    const std::vector<Tokens> earlier(kChunks.begin(), kChunks.begin() + before);
    const std::vector<double> expected = scores({}, 2, earlier, kQuery);
    std::vector<double> parts;
    for (int64_t first = 0; first < before; first += 3) {
      const std::vector<double> part = index.scores(kQuery, before, first, std::min(first + 3, before));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, expected) << before;
  }
}

TEST(Bm25, NothingIsKnownAtTheBeginning) {
  EXPECT_EQ(scores({}, 4, {}, kQuery), std::vector<double>());
}

}  // namespace
}  // namespace quire::test
