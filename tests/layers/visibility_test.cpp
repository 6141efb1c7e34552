#include "layers/pass/visibility.h"

#include <gtest/gtest.h>

#include "tests/support/hand_batch.h"

namespace quire::test {
namespace {

using Positions = std::vector<int32_t>;

// carried: what each row carries, which its first segment begins with.
Positions visible(const Batch& batch, const std::vector<int64_t>& carried, std::optional<int64_t> window) {
  const std::vector<Segment> segments = segments_of(batch);
  std::vector<int64_t> initial;
  for (const Segment& segment : segments) {
    initial.push_back(segment.carried ? carried[static_cast<size_t>(segment.row)] : 0);
  }
  return first_visible(batch, segments, initial, window);
}

TEST(FirstVisible, CarriedKeysBelongToTheFirstSegment) {
  const Batch batch = batch_of({{0, 0, 1, 1, 2}, {0, 0, 0, -1, -1}}, {0, 0});
  const int32_t nothing = 6;  // T + 1: padding
  EXPECT_EQ(visible(batch, {3, 0}, std::nullopt), (Positions{-3, -3, 2, 2, 4, 0, 0, 0, nothing, nothing}));
}

TEST(FirstVisible, AWindowCutsEachSegment) {
  const Batch batch = batch_of({{0, 0, 0, 0, 1, 1, 1, 1}}, {0});
  EXPECT_EQ(visible(batch, {5}, 2), (Positions{-2, -1, 0, 1, 4, 4, 4, 5}));
  EXPECT_EQ(visible(batch, {1}, 2), (Positions{-1, -1, 0, 1, 4, 4, 4, 5}));
}

TEST(VisibleBand, IsThereForOneDocumentInARow) {
  const auto band = [](const Batch& batch, int64_t carried, std::optional<int64_t> window) {
    return visible_band(batch, segments_of(batch), carried, window, false);
  };
  const std::optional<ops::AttentionBand> full = band(batch_of({{0, 0, 0}, {0, 0, 0}}, {0, 1}), 7, std::nullopt);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->carried, 7);
  EXPECT_FALSE(full->window);
  EXPECT_FALSE(full->padding);
  const std::optional<ops::AttentionBand> padded = band(batch_of({{0, 0, 0}, {0, -1, -1}}, {0, 1}), 7, 2);
  ASSERT_TRUE(padded);
  EXPECT_EQ(padded->carried, 2);
  EXPECT_EQ(padded->window, 2);
  EXPECT_TRUE(padded->padding);
  const std::optional<ops::AttentionBand> empty = band(batch_of({{0, 0, 0}, {-1, -1, -1}}, {0, 1}), 0, std::nullopt);
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->padding);
  EXPECT_FALSE(full->several_documents);
  EXPECT_FALSE(band(batch_of({{0, 0, 0}, {0, 1, 1}}, {0, 1}), 7, std::nullopt));
}

TEST(VisibleBand, OfSeveralDocumentsIsThereForEveryBatch) {
  for (const Batch& batch : {batch_of({{0, 0, 0}, {0, 1, 1}}, {0, 1}), batch_of({{0, 0, 0}, {0, 0, 0}}, {0, 1})}) {
    const std::optional<ops::AttentionBand> band = visible_band(batch, segments_of(batch), 7, 2, true);
    ASSERT_TRUE(band);
    EXPECT_TRUE(band->several_documents);
    EXPECT_EQ(band->carried, 2);
    EXPECT_FALSE(band->padding);
  }
  // A gap in front of a document that begins at a multiple of the alignment is padding.
  const Batch gap = batch_of({{0, 0, -1, 1}}, {0});
  EXPECT_TRUE(visible_band(gap, segments_of(gap), 0, std::nullopt, true)->padding);
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
