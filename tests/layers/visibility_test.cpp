#include "layers/visibility.h"

#include <gtest/gtest.h>

#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

using Positions = std::vector<int32_t>;

TEST(FirstVisible, CarriedKeysBelongToTheFirstSegment) {
  const Batch batch = batch_of({{0, 0, 1, 1, 2}, {0, 0, 0, -1, -1}}, {0, 0});
  const std::vector<int64_t> carried{3, 0};
  const int32_t nothing = 6;  // T + 1: padding
  EXPECT_EQ(first_visible(batch, carried, std::nullopt), (Positions{-3, -3, 2, 2, 4, 0, 0, 0, nothing, nothing}));
}

TEST(FirstVisible, AWindowCutsEachSegment) {
  const Batch batch = batch_of({{0, 0, 0, 0, 1, 1, 1, 1}}, {0});
  EXPECT_EQ(first_visible(batch, std::vector<int64_t>{5}, 2), (Positions{-2, -1, 0, 1, 4, 4, 4, 5}));
  EXPECT_EQ(first_visible(batch, std::vector<int64_t>{1}, 2), (Positions{-1, -1, 0, 1, 4, 4, 4, 5}));
}

TEST(T5Bucket, GrowsWithDistanceAndEnds) {
  int64_t last = 0;
  for (int64_t distance = 0; distance < 1000; ++distance) {
    const int64_t bucket = t5_bucket(-distance, 32, 128, false);
    EXPECT_GE(bucket, last);
    EXPECT_LE(bucket, last + 1);
    last = bucket;
  }
  EXPECT_EQ(last, 31);
  EXPECT_EQ(t5_bucket(-15, 32, 128, false), 15);
  EXPECT_EQ(t5_bucket(-127, 32, 128, false), 31);
  EXPECT_EQ(t5_bucket(7, 32, 128, false), 0);  // keys to the right share a causal bucket
  EXPECT_EQ(t5_bucket(7, 32, 128, true), 23);
}

}  // namespace
}  // namespace quire::test
