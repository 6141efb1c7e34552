#include "trainers/run/progress.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Progress, LinesSayHowFarAndHowLong) {
  EXPECT_EQ(progress_line({"train", 0, 500, 2000, 100.0, "loss 1.2"}), "train 500/2000 (25%), 5:00 left, loss 1.2");
  EXPECT_EQ(progress_line({"train", 0, 0, 2000, 3.0, ""}), "train 0/2000 (0%)");
  EXPECT_EQ(progress_line({"train", 0, 2000, 2000, 3725.0, ""}), "train 2000/2000 (100%), 1:02:05");
  // After a resume at 1000 the speed is that of the 100 steps done since.
  EXPECT_EQ(progress_line({"train", 1000, 1100, 2000, 10.0, ""}), "train 1100/2000 (55%), 1:30 left");
  EXPECT_EQ(progress_line({"eval", 0, 0, 0, 0.0, ""}), "eval 0/0 (100%), 0:00");
}

TEST(Progress, BarsFitTheTerminal) {
  const ProgressState state{"train", 0, 500, 2000, 100.0, "loss 1.2"};
  EXPECT_EQ(progress_bar(state, 60), "train [#####.................] 500/2000  5:00 left  loss 1.2");
  EXPECT_EQ(progress_bar(state, 38), "train 25% 500/2000  5:00 left  loss 1.");
  for (int64_t width = 0; width < 120; ++width) {
    EXPECT_LE(progress_bar(state, width).size(), static_cast<size_t>(width));
  }
}

}  // namespace
}  // namespace quire
