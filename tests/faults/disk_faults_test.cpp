// Disks that are full and folders that cannot be written.
#include "tests/faults/expect_fault.h"
#include "tests/support/small_disk.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

TEST(DiskFaults, ARunDirectoryThatCannotBeMade) {
  const TinyRun tiny;
  write_text(tiny / "file", "");
  EXPECT_FAULT(tiny.train("file/run"), 7, "choose another --run-dir");
  EXPECT_FAULT(tiny.train("file"), 7, "choose another --run-dir");
  EXPECT_EQ(read_text(tiny / "file"), "");
}

// Room for a few checkpoints of about 60 kB, then a file takes the rest.
class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "mounting a small disk is not permitted here";
    run_ = disk_.path() / "run";
    ASSERT_EQ(train({"schedule.steps=10", "schedule.kind=constant", "checkpoint.every=5"}).code, 0);
  }
  ProgramResult train(std::vector<std::string> overrides) const {
    overrides.insert(overrides.begin(), {"train", tiny_.config().string(), "--run-dir", run_.string()});
    return run_quire(overrides);
  }
  // Leaves `free` bytes.
  void fill(uintmax_t free) const {
    const uintmax_t available = fs::space(disk_.path()).available;
    ASSERT_GT(available, free);
    write_text(disk_.path() / "filler", std::string(available - free, 'x'));
  }
  ProgramResult resume(std::vector<std::string> overrides) const {
    overrides.insert(overrides.begin(), {"train", "--resume", run_.string()});
    return run_quire(overrides);
  }

  SmallDisk disk_{2000};
  TinyRun tiny_;
  fs::path run_;
};

TEST_F(FullDisk, StopsTheRunAndKeepsThePreviousCheckpoint) {
  fill(60000);
  const ProgramResult full = resume({"schedule.steps=20"});
  EXPECT_EQ(full.code, 7) << full.err;
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_NE(full.errors().front().find("No space left on device"), std::string::npos) << full.err;
  EXPECT_EQ(checkpoint_steps(run_ / "checkpoints"), (std::vector<int64_t>{10, 5}));
  EXPECT_NO_THROW(CheckpointReader::open(*latest_checkpoint(run_ / "checkpoints")));

  fs::remove(disk_.path() / "filler");
  ASSERT_EQ(resume({"schedule.steps=20"}).code, 0);
  ASSERT_EQ(tiny_.train("whole", {"schedule.kind=constant"}).code, 0);
  EXPECT_EQ(comparable_metrics(run_), comparable_metrics(tiny_ / "whole"));
  const CheckpointReader reader = CheckpointReader::open(*latest_checkpoint(run_ / "checkpoints"));
  expect_same_checkpoint(reader.path(), tiny_.checkpoint("whole", 20));
}

TEST_F(FullDisk, IsAWarningWhenTheRunShallGoOnButNotAtItsEnd) {
  fill(60000);
  const ProgramResult full = resume({"schedule.steps=22", "checkpoint.on_error=warn"});
  EXPECT_EQ(full.code, 7) << full.err;  // the last step's weights would be lost
  for (const char* step : {"15", "20"}) {
    EXPECT_NE(full.err.find(std::string("quire: warning: no checkpoint of step ") + step), std::string::npos)
        << full.err;
  }
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_EQ(comparable_metrics(run_).back()["step"], 22);
  EXPECT_EQ(checkpoint_steps(run_ / "checkpoints"), (std::vector<int64_t>{10, 5}));
}

TEST_F(FullDisk, PrepareLeavesNothingBehind) {
  fill(20000);
  write_text(tiny_ / "long.txt", std::string(100000, 'a'));
  const fs::path output = disk_.path() / "c.h5";
  EXPECT_FAULT(run_quire({"prepare", "--input", (tiny_ / "long.txt").string(), "--output", output.string()}), 7,
               "No space left on device");
  for (const auto& entry : fs::directory_iterator(disk_.path())) {
    EXPECT_EQ(entry.path().filename().string().find("c.h5"), std::string::npos) << entry.path();
  }
}

TEST_F(FullDisk, AnEvaluationLeavesNoTornFileOfLosses) {
  fill(4000);
  const fs::path losses = disk_.path() / "losses.h5";
  const ProgramResult full = run_quire({"eval", run_.string(), "--losses", losses.string()});
  EXPECT_EQ(full.code, 7) << full.err;
  ASSERT_EQ(full.errors().size(), 1U) << full.err;
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  for (const auto& entry : fs::directory_iterator(disk_.path())) {
    EXPECT_EQ(entry.path().filename().string().find("losses"), std::string::npos) << entry.path();
  }
}

TEST(DiskFaults, OutputThatIsLost) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string run = (tiny / "run").string();
  ProgramOptions options;
  options.out = "/dev/full";
  const std::vector<std::vector<std::string>> commands{
      {"eval", run},
      {"eval", run, "--json"},
      {"generate", run, "--prompt", "a", "--length", "5"},
      {"generate", run, "--prompt", "a", "--length", "5", "--json"},
      {"bench", tiny.config().string(), "--steps", "1", "--warmup", "0"},
      {"config", tiny.config().string(), "--print", "full"},
      {"--help"}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = run_quire(command, options);
    EXPECT_EQ(result.code, 7) << command.front() << result.err;
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    EXPECT_NE(result.err.find("standard output cannot be written"), std::string::npos) << result.err;
  }
}

// The numbers of closed descriptors go to the next files opened: nothing may be printed into them.
TEST(DiskFaults, ClosedDescriptors) {
  const TinyRun tiny;
  ProgramOptions options;
  options.closed = true;
  ASSERT_EQ(run_quire(tiny.train_arguments("run"), options).code, 0);
  ASSERT_EQ(tiny.train("whole").code, 0);
  EXPECT_EQ(read_text(tiny / "run/config.yaml"), read_text(tiny / "whole/config.yaml"));
  EXPECT_EQ(comparable_metrics(tiny / "run"), comparable_metrics(tiny / "whole"));
  expect_same_checkpoint(tiny.checkpoint("run", 20), tiny.checkpoint("whole", 20));
  EXPECT_EQ(run_quire({"eval", (tiny / "run").string()}, options).code, 7);
}

}  // namespace
}  // namespace quire::test
