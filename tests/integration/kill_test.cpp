// Kills runs (kill -9) while checkpoints are written: whatever the moment, the resumed run reaches the same weights.
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

using Clock = std::chrono::steady_clock;

int64_t size_of_file(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto size = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : static_cast<int64_t>(size);
}

// Returns when the file has grown, or the program has ended.
void wait_for_growth(RunningProgram& program, const std::filesystem::path& path) {
  const int64_t before = size_of_file(path);
  while (size_of_file(path) <= before && program.running()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

// A checkpoint whose writing has begun and not ended.
bool holds_unfinished(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().front() == '.') return true;
  }
  return false;
}

TEST(Kill, TenTimesWhileSavingAndTheWeightsAreTheSame) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole", {"schedule.steps=150", "checkpoint.every=0"}).code, 0);
  const std::vector<std::string> saving{"checkpoint.every=1", "checkpoint.keep=2"};
  std::vector<std::string> first = saving;
  first.emplace_back("schedule.steps=150");
  const std::filesystem::path metrics = tiny / "killed/metrics.jsonl";
  std::mt19937 random(11);
  int64_t furthest = 0;
  int unfinished = 0;
  for (int round = 0; round < 10; ++round) {
    RunningProgram program(round == 0 ? tiny.train_arguments("killed", first)
                                      : tiny.resume_arguments(tiny / "killed", saving));
    // A step takes less than a millisecond, the rest of the time between two lines goes into a checkpoint.
    wait_for_growth(program, metrics);
    const auto started = Clock::now();
    if (round > 0) wait_for_growth(program, metrics);
    const auto interval = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - started).count();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % static_cast<uint64_t>(2 * interval + 20000)));
    ASSERT_TRUE(program.running()) << round << program.wait().err;
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().signal, SIGKILL);
    unfinished += holds_unfinished(tiny / "killed/checkpoints") ? 1 : 0;
    const std::vector<int64_t> steps = checkpoint_steps(tiny / "killed/checkpoints");
    const int64_t newest = steps.empty() ? 0 : steps.front();
    EXPECT_GE(newest, furthest) << "a finished checkpoint was lost";
    for (const int64_t step : steps) EXPECT_NO_THROW(CheckpointReader::open(tiny.checkpoint("killed", step)));
    furthest = newest;
  }
  EXPECT_GT(furthest, 0);
  EXPECT_GT(unfinished, 0) << "no kill came while a checkpoint was written";
  const ProgramResult finished = tiny.resume("killed", {"checkpoint.every=0"});
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "killed"));
  expect_same_checkpoint(tiny.checkpoint("whole", 150), tiny.checkpoint("killed", 150));
}

TEST(Kill, BeforeTheFirstCheckpointTheRunBeginsAgain) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  // A kill between the line of the first checkpoint's step and that checkpoint leaves such a run.
  std::filesystem::copy(tiny / "whole", tiny / "killed", std::filesystem::copy_options::recursive);
  for (const int64_t step : {10, 20}) std::filesystem::remove_all(tiny.checkpoint("killed", step));
  truncate_metrics_after(tiny / "killed/metrics.jsonl", 10);
  std::filesystem::create_directory(tiny / "killed/checkpoints/.step-00000010.partial");
  const ProgramResult resumed = tiny.resume("killed");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("before its first checkpoint"), std::string::npos) << resumed.err;
  EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "killed"));
  expect_same_checkpoint(tiny.checkpoint("whole", 20), tiny.checkpoint("killed", 20));
}

TEST(Kill, BehindTheLastStepLeavesNothingForever) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run").code, 0);
  for (const char* name : {".step-00000010.removed", ".step-00000020.partial"}) {
    std::filesystem::create_directory(tiny / "run/checkpoints" / name);
    write_text(tiny / "run/checkpoints" / name / "model.h5", "half");
  }
  ASSERT_TRUE(holds_unfinished(tiny / "run/checkpoints"));
  ASSERT_EQ(tiny.resume("run").code, 0);
  EXPECT_FALSE(holds_unfinished(tiny / "run/checkpoints"));
  EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), (std::vector<int64_t>{20, 10}));
}

// Only the newest checkpoint exists at any moment, and only for a short time.
TEST(Kill, EvaluatingARunThatRemovesItsCheckpoints) {
  const TinyRun tiny;
  RunningProgram program(
      tiny.train_arguments("run", {"schedule.steps=1000000", "checkpoint.every=1", "checkpoint.keep=1"}));
  while (checkpoint_steps(tiny / "run/checkpoints").empty() && program.running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int round = 0; round < 10; ++round) {
    const ProgramResult result = run_quire({"eval", (tiny / "run").string(), "run.threads=1"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
  }
  EXPECT_TRUE(program.running());
}

}  // namespace
}  // namespace quire::test
