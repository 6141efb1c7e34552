// Tests other ways to stop than a signal: a STOP file in the run directory and run.max_wall_time.
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

TEST(StopReasons, AStopFileEndsTheRunAndGoesAway) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  fs::create_directory(tiny / "run");
  write_text(tiny / "run/STOP", "");
  const ProgramResult stopped = tiny.train("run");
  ASSERT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("stopped after step 1 (" + (tiny / "run/STOP").string() + "); go on with"),
            std::string::npos)
      << stopped.err;
  EXPECT_FALSE(fs::exists(tiny / "run/STOP"));
  EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), (std::vector<int64_t>{1}));
  ASSERT_EQ(tiny.resume("run").code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "run"), comparable_metrics(tiny / "whole"));
  expect_same_checkpoint(tiny.checkpoint("run", 20), tiny.checkpoint("whole", 20));
}

TEST(StopReasons, WallTimeEndsTheRun) {
  const TinyRun tiny;
  const ProgramResult stopped =
      tiny.train("run", {"schedule.steps=100000000", "log.every=1000", "checkpoint.every=0", "run.max_wall_time=1s"});
  ASSERT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_NE(stopped.err.find("(run.max_wall_time: 1s)"), std::string::npos) << stopped.err;
  ASSERT_EQ(checkpoint_steps(tiny / "run/checkpoints").size(), 1U);
  const int64_t step = checkpoint_steps(tiny / "run/checkpoints").front();
  // Another limit, or none, may be set when the run goes on.
  const ProgramResult done =
      tiny.resume("run", {"schedule.steps=" + std::to_string(step + 3), "run.max_wall_time=none"});
  EXPECT_EQ(done.code, 0) << done.err;
}

}  // namespace
}  // namespace quire::test
