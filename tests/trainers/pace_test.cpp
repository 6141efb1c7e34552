#include "trainers/run/pace.h"

#include <gtest/gtest.h>

#include "trainers/run/step_line.h"

namespace quire {
namespace {

// Feeds `count` steps and returns what was said, joined.
std::string feed(Pace& pace, int count, double seconds) {
  std::string said;
  for (int i = 0; i < count; ++i) said += pace.add(seconds);
  return said;
}

TEST(Pace, WarnsOnceWhenStepsTakeThreeTimesAsLongAsInTheBeginning) {
  Pace pace(10);
  EXPECT_EQ(feed(pace, 30, 1.0), "");  // the first three windows
  EXPECT_EQ(feed(pace, 20, 2.5), "");  // slower, but not far
  const std::string said = feed(pace, 5, 4.0);
  EXPECT_EQ(said.rfind("a step took 4 s over the last 5 steps (20 s), 4.0 times the 1 s of the first minutes", 0), 0U)
      << said;
  EXPECT_EQ(feed(pace, 20, 4.0), "");
  EXPECT_EQ(feed(pace, 20, 1.0), "");
  EXPECT_NE(feed(pace, 5, 4.0), "");  // again, after it had been fast
}

TEST(Pace, AWindowHasFiveSteps) {
  Pace pace(10);
  EXPECT_EQ(feed(pace, 15, 20.0), "");
  EXPECT_EQ(feed(pace, 4, 100.0), "");  // a step that a stopped machine made long is no pace
  EXPECT_NE(pace.add(100.0), "");
}

StepResult step_of(double loss, int64_t targets, bool read = true) {
  StepResult result;
  result.read = read;
  result.loss = loss;
  result.targets = targets;
  return result;
}

TEST(StepLine, SaysLossInBothUnitsAndSpeed) {
  StepLine line(2.0);
  EXPECT_EQ(line.text(), "");
  EXPECT_EQ(line.recent_losses(), "");
  line.add(step_of(1.5, 100), 0.5);
  EXPECT_EQ(line.text(), "loss 1.500 (3.00 bits/byte), 200 tokens/s");
  line.add(step_of(9, 100, false), 0.5);
  EXPECT_EQ(line.text(), "loss 1.500 (3.00 bits/byte), 200 tokens/s");
  line.add(step_of(2.5, 100), 0.5);
  EXPECT_EQ(line.recent_losses(), ", the last 2 training steps 2.0000 (4.0000 bits/byte)");
  StepLine plain(std::nullopt);
  plain.add(step_of(1.5, 10), 1);
  EXPECT_EQ(plain.text(), "loss 1.500, 10 tokens/s");
}

}  // namespace
}  // namespace quire
