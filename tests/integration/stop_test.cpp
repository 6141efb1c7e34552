// Tests signals: the step ends, a checkpoint is written, the exit code is 75, and the resumed run equals one that was
// never stopped.
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

int64_t lines_in(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  return std::count(text.begin(), text.end(), '\n');
}

// Until the program has logged `count` more lines, or has ended.
bool wait_for_lines(RunningProgram& program, const std::filesystem::path& metrics, int64_t count) {
  while (lines_in(metrics) < count) {
    if (!program.running()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(Stop, SignalsEndTheStepAndTheRunGoesOn) {
  const TinyRun tiny;
  // Two hundred times as many steps as are waited for: no machine finishes them before the signal comes.
  const std::vector<std::string> options{"schedule.steps=3000", "evaluate.every=500", "checkpoint.every=0"};
  ASSERT_EQ(tiny.train("whole", options).code, 0);
  std::vector<std::string> arguments = tiny.train_arguments("stopped", options);
  int64_t seen = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    RunningProgram program(arguments);
    ASSERT_TRUE(wait_for_lines(program, tiny / "stopped/metrics.jsonl", seen + 15)) << program.wait().err;
    program.send(signal);
    const ProgramResult result = program.wait();
    ASSERT_EQ(result.code, 75) << signal << result.err;
    EXPECT_NE(result.err.find("quire train --resume"), std::string::npos) << result.err;
    EXPECT_TRUE(result.errors().empty()) << result.err;
    const auto steps = checkpoint_steps(tiny / "stopped/checkpoints");
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(comparable_metrics(tiny / "stopped").back()["step"], steps.front());
    seen = lines_in(tiny / "stopped/metrics.jsonl");
    arguments = tiny.resume_arguments(tiny / "stopped");
  }
  ASSERT_EQ(run_quire(arguments).code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "stopped"));
  expect_same_checkpoint(tiny.checkpoint("whole", 3000), tiny.checkpoint("stopped", 3000));
}

// A signal during an evaluation leaves it out; it is made up for when the run goes on.
TEST(Stop, AnEvaluationThatWasCutShortIsMadeUpFor) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=4", "evaluate.every=2", "checkpoint.every=2"};
  ASSERT_EQ(tiny.train("whole", options).code, 0);
  for (const int64_t step : {2, 4}) {
    const std::string name = "cut" + std::to_string(step);
    std::filesystem::copy(tiny / "whole", tiny / name, std::filesystem::copy_options::recursive);
    if (step == 2) std::filesystem::remove_all(tiny.checkpoint(name, 4));
    std::string kept;
    for (const auto& line : read_metrics(tiny / "whole/metrics.jsonl")) {
      if (line["step"] <= step && !(line["step"] == step && line.contains("evaluation"))) kept += line.dump() + "\n";
    }
    write_text(tiny / name / "metrics.jsonl", kept);
    ASSERT_EQ(tiny.resume(name).code, 0);
    EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / name));
  }
}

// Signals that arrive after the run has stopped and reported its end do not change the exit code.
TEST(Stop, SignalsOnTheWayOutChangeNothing) {
  const TinyRun tiny;
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    for (const bool stopped : {true, false}) {
      std::filesystem::remove_all(tiny / "run");
      std::filesystem::create_directory(tiny / "run");
      if (stopped) write_text(tiny / "run/STOP", "");
      RunningProgram program(tiny.train_arguments("run", {"schedule.steps=2"}));
      const std::filesystem::path log = tiny / "run/log.txt";
      const std::string end = stopped ? "stopped after step 1" : "finished after step 2";
      while (program.running() && read_text(log).find(end) == std::string::npos) {
      }
      while (program.running()) program.send(signal);
      const ProgramResult result = program.wait();
      EXPECT_EQ(result.code, stopped ? 75 : 0) << signal << ' ' << result.signal << result.err;
    }
  }
}

TEST(Stop, ARunHasOneProcess) {
  const TinyRun tiny;
  RunningProgram program(tiny.train_arguments("run", {"schedule.steps=1000000", "log.every=1", "checkpoint.every=5"}));
  ASSERT_TRUE(wait_for_lines(program, tiny / "run/metrics.jsonl", 12));
  for (const ProgramResult& result : {tiny.train("run"), tiny.resume("run")}) {
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("another process is running here"), std::string::npos) << result.err;
  }
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().code, 75);
}

// Before the first step, too.
TEST(Stop, ASignalDuringTheStart) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  RunningProgram program(tiny.train_arguments("run"));
  while (program.running() && !std::filesystem::exists(tiny / "run/config.yaml")) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  program.send(SIGTERM);
  const int code = program.wait().code;
  EXPECT_TRUE(code == 75 || code == 0) << code;
  EXPECT_EQ(tiny.resume("run").code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "run"));
}

}  // namespace
}  // namespace quire::test
