#include "data/corpus/document_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace quire {
namespace {

std::vector<int64_t> epoch_of(const DocumentOrder& order, int64_t epoch) {
  std::vector<int64_t> documents;
  for (int64_t i = 0; i < order.documents(); ++i) documents.push_back(order.at(epoch * order.documents() + i));
  return documents;
}

TEST(DocumentOrder, EveryEpochIsAPermutation) {
  for (int64_t n = 1; n <= 200; ++n) {
    const DocumentOrder order(n, 7, true);
    for (const int64_t epoch : {0, 1, 1000}) {
      std::vector<int64_t> documents = epoch_of(order, epoch);
      std::sort(documents.begin(), documents.end());
      std::vector<int64_t> all(static_cast<size_t>(n));
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(documents, all) << n << " documents, epoch " << epoch;
    }
  }
}

TEST(DocumentOrder, DependsOnEpochAndSeed) {
  const DocumentOrder order(60, 1, true);
  EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
  EXPECT_NE(epoch_of(order, 0), epoch_of(DocumentOrder(60, 2, true), 0));
  EXPECT_EQ(epoch_of(order, 3), epoch_of(DocumentOrder(60, 1, true), 3));
}

// Over many epochs every document should come first about equally often: 50 documents, 10000 epochs, 200 expected, with
// a standard deviation of 14. Bounds of six deviations.
TEST(DocumentOrder, IsUniformInTheFirstPlace) {
  const DocumentOrder order(50, 5, true);
  std::vector<int> first(50, 0);
  for (int64_t epoch = 0; epoch < 10'000; ++epoch) ++first[static_cast<size_t>(order.at(epoch * 50))];
  for (const int count : first) {
    EXPECT_GT(count, 116);
    EXPECT_LT(count, 284);
  }
}

TEST(DocumentOrder, WithoutShuffleIsTheOrderOfTheSplit) {
  const DocumentOrder order(3, 1, false);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(epoch_of(order, 5), (std::vector<int64_t>{0, 1, 2}));
}

TEST(DocumentOrder, WorksForVeryManyDocuments) {
  const DocumentOrder order(int64_t{3'000'000'000}, 1, true);
  EXPECT_NE(order.at(0), order.at(1));
  EXPECT_LT(order.at(2'999'999'999), 3'000'000'000);
}

}  // namespace
}  // namespace quire
