// BM25: a worked example, chunks that are no longer known, and what does not change with what comes later.
#include "layers/stacks/bm25.h"

#include <gtest/gtest.h>

namespace quire::test {
namespace {

using Tokens = std::vector<int32_t>;

Bm25 indexed(const Bm25Config& config, int64_t window, const std::vector<Tokens>& chunks) {
  Bm25 index(config, window);
  for (const Tokens& chunk : chunks) index.add(chunk);
  return index;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << i;
}

const std::vector<Tokens> kChunks{{1, 2, 3, 1}, {4, 2, 5, 6}, {1, 1, 7, 2}, {8, 9, 3, 3}};
const Tokens kQuery{1, 2, 3, 10, 1};

TEST(Bm25, WorkedExample) {
  expect_near(indexed({}, 100, kChunks).scores(kQuery), {2.002899, 0.356675, 1.309752, 0.953077});
  expect_near(indexed({.repeated = true}, 100, kChunks).scores(kQuery), {2.955977, 0.356675, 2.262830, 0.953077});
}

TEST(Bm25, OnlyTheLastChunksAreKnown) {
  const std::vector<double> all = indexed({}, 2, kChunks).scores(kQuery);
  const std::vector<double> last = indexed({}, 2, {kChunks[2], kChunks[3]}).scores(kQuery);
  expect_near(all, {0, 0, last[0], last[1]});
}

TEST(Bm25, LongChunksCountLess) {
  const std::vector<Tokens> chunks{{1, 2}, {1, 2, 3, 4, 5, 6}, {7, 8}};
  const std::vector<double> scores = indexed({}, 9, chunks).scores(Tokens{1});
  EXPECT_GT(scores[0], scores[1]);
  EXPECT_EQ(scores[2], 0);
  const std::vector<double> alike = indexed({.b = 0}, 9, chunks).scores(Tokens{1});
  EXPECT_EQ(alike[0], alike[1]);
}

TEST(Bm25, NothingIsKnownAtTheBeginning) {
  EXPECT_EQ(Bm25({}, 4).scores(kQuery), std::vector<double>());
}

}  // namespace
}  // namespace quire::test
