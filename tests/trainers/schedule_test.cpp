#include "trainers/schedule.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace quire {
namespace {

TEST(Schedule, CosineWarmsUpAndEndsAtFinal) {
  const ScheduleConfig config{ScheduleKind::cosine, 10, 110, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 1), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 60), 2.0 * 0.55);  // half way: the mean of 1 and final
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 110), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 1000), 0.2);
  for (int64_t step = 11; step <= 110; ++step) {
    EXPECT_LT(learning_rate(config, 2.0, step), learning_rate(config, 2.0, step - 1)) << step;
  }
}

TEST(Schedule, ConstantStaysAtThePeak) {
  const ScheduleConfig config{ScheduleKind::constant, 4, 8, 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 100), 1.0);
}

TEST(Schedule, DegenerateLengths) {
  EXPECT_DOUBLE_EQ(learning_rate({ScheduleKind::cosine, 0, 1, 0.1}, 1.0, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate({ScheduleKind::cosine, 5, 5, 0.1}, 1.0, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate({ScheduleKind::cosine, 5, 5, 0.1}, 1.0, 6), 0.1);
  EXPECT_THROW(learning_rate({}, 1.0, 0), Error);
}

TEST(Schedule, WarmupLongerThanTheRunIsRefused) {
  try {
    parse_config<ScheduleConfig>("{kind: cosine, warmup: 11, steps: 10}", "s.yaml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "s.yaml:1:24: warmup: must not be above steps");
  }
}

}  // namespace
}  // namespace quire
