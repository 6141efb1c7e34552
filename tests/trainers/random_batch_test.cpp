#include "trainers/plan/random_batch.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(RandomBatch, HoldsWhatTheModelInserts) {
  DataConfig data;
  data.rows = 2;
  data.subsequence = 7;
  const Insertion insertion{.period = 3, .ids = 2};
  for (int64_t step = 0; step < 5; ++step) {
    const Batch batch = random_batch(data, 11, insertion, step);
    int64_t counted = 0;
    for (int64_t row = 0; row < 2; ++row) {
      for (int64_t t = 0; t < 7; ++t) {
        const auto i = static_cast<size_t>(batch.at(row, t));
        const int64_t position = 7 * step + t;
        EXPECT_EQ(batch.position[i], position);
        EXPECT_EQ(batch.inserted[i], insertion.is_inserted(position) ? 1 : 0);
        EXPECT_EQ(batch.loss_mask[i], insertion.is_inserted(position) ? 0 : 1);
        if (insertion.is_inserted(position)) {
          EXPECT_EQ(batch.tokens[i], 11 + insertion.id_at(position));
        } else {
          EXPECT_LT(batch.tokens[i], 11);
        }
        counted += batch.loss_mask[i];
      }
    }
    EXPECT_EQ(batch.target_count, counted);
    EXPECT_EQ(batch.starts, std::vector<uint8_t>(2, step == 0 ? 1 : 0));
  }
  EXPECT_TRUE(random_batch(data, 11, {}, 0).inserted.empty());
}

TEST(RandomBatch, PredictsWhatTheModelPredicts) {
  DataConfig data;
  data.rows = 2;
  data.subsequence = 7;
  const Insertion insertion{.period = 3, .ids = 2, .predicted = true};
  for (int64_t step = 0; step < 5; ++step) {
    const Batch batch = random_batch(data, 11, insertion, step);
    int64_t counted = 0;
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      const int64_t next = batch.position[i] + 1;
      EXPECT_EQ(batch.loss_mask[i], insertion.is_inserted(next) ? 0 : 1);
      if (insertion.is_inserted(next)) {
        EXPECT_EQ(batch.targets[i], 11 + insertion.id_at(next));
      } else {
        EXPECT_LT(batch.targets[i], 11);
      }
      counted += batch.loss_mask[i];
    }
    EXPECT_EQ(batch.target_count, counted);
  }
}

}  // namespace
}  // namespace quire
