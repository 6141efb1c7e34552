#include "trainers/optimizer/schedule.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace quire {
namespace {

ScheduleConfig schedule(const std::string& text) {
  return parse_config<ScheduleConfig>(text, "s.yaml");
}

TEST(Schedule, CosineWarmsUpAndEndsAtFinal) {
  const ScheduleConfig config = schedule("{kind: cosine, warmup: 10, steps: 110, final: 0.1}");
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
  const ScheduleConfig config = schedule("{kind: constant, warmup: 4, steps: 8}");
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 2), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 4), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1.0, 100), 1.0);
}

TEST(Schedule, DegenerateLengths) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule("{warmup: 0, steps: 1}"), 1.0, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("{warmup: 5, steps: 5}"), 1.0, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule("{warmup: 5, steps: 5}"), 1.0, 6), 0.1);
  EXPECT_THROW(learning_rate({}, 1.0, 0), Error);
}

TEST(Schedule, LinearFallsByTheSameAmountEveryStep) {
  const ScheduleConfig config = schedule("{kind: linear, warmup: 10, steps: 110, final: 0.2}");
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 5), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 35), 1.6);  // a quarter of the way from 2 to 0.4
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 60), 1.2);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 110), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 111), 0.4);
}

TEST(Schedule, InverseSqrtFallsWithTheRootOfTheStep) {
  const ScheduleConfig config = schedule("{kind: inverse_sqrt, warmup: 100, steps: 10000}");
  EXPECT_DOUBLE_EQ(learning_rate(config, 3.0, 50), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3.0, 100), 3.0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3.0, 400), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3.0, 10000), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 3.0, 40000), 0.15);  // goes on beyond the run's length
  EXPECT_DOUBLE_EQ(learning_rate(schedule("{kind: inverse_sqrt, warmup: 0, steps: 9}"), 3.0, 9), 1.0);
}

TEST(Schedule, WsdIsStableThenDecays) {
  const ScheduleConfig line = schedule("{kind: wsd, warmup: 10, steps: 1000, decay: 100, final: 0.1}");
  const ScheduleConfig root =
      schedule("{kind: wsd, warmup: 10, steps: 1000, decay: 100, final: 0.1, decay_shape: one_minus_sqrt}");
  for (const ScheduleConfig& config : {line, root}) {
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 5), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 10), 2.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 900), 2.0);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 1000), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(config, 2.0, 2000), 0.2);
  }
  EXPECT_DOUBLE_EQ(learning_rate(line, 2.0, 925), 2.0 * 0.775);  // 0.1 + 0.9 * 3/4
  EXPECT_DOUBLE_EQ(learning_rate(root, 2.0, 925), 2.0 * 0.55);   // 0.1 + 0.9 * (1 - 1/2)
}

TEST(Schedule, SettingsThatContradictAreRefused) {
  const std::pair<const char*, const char*> faults[] = {
      {"{kind: cosine, warmup: 11, steps: 10}",
       "s.yaml:1:35: steps: 10 steps end before the warm-up of 11 does; schedule.warmup=1 would do, or "
       "schedule.steps=11 and more"},
      {"{kind: constant, final: 0.2}",
       "s.yaml:1:18: final: means nothing here: schedule.kind constant and inverse_sqrt have no final rate; leave it "
       "out"},
      {"{kind: cosine, decay: 5}",
       "s.yaml:1:16: decay: means nothing here: only schedule.kind wsd has it; leave it out"},
      {"{decay_shape: one_minus_sqrt}",
       "s.yaml:1:2: decay_shape: means nothing here: only schedule.kind wsd has it; leave it out"},
      {"{kind: wsd}", "s.yaml:1:1: decay: wsd needs the length of its decay, for example a fifth of schedule.steps"},
      {"{kind: wsd, warmup: 6, steps: 10, decay: 5}",
       "s.yaml:1:31: steps: 10 steps are fewer than the 6 of warm-up and the 5 of decay together; schedule.warmup=1 "
       "schedule.decay=2 would do, or schedule.steps=11 and more"},
  };
  for (const auto& [text, message] : faults) {
    try {
      schedule(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), message);
    }
  }
}

TEST(Schedule, WhatIsWrittenReadsBack) {
  for (const char* text :
       {"{kind: wsd, steps: 1000, decay: 100}", "{kind: constant}", "{kind: inverse_sqrt}", "{kind: linear}"}) {
    const std::string written = dump_config(schedule(text));
    EXPECT_EQ(dump_config(schedule(written)), written);
    EXPECT_EQ(written.find("final") == std::string::npos, written.find("kind: constant") != std::string::npos ||
                                                              written.find("kind: inverse_sqrt") != std::string::npos);
  }
}

}  // namespace
}  // namespace quire
