// Command lines that mean nothing.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

TEST(UsageFaults, AreOneLineThatPointsToTheHelp) {
  const std::vector<std::vector<std::string>> commands{{"trian"},
                                                       {"train", "--resme", "x"},
                                                       {"eval"},
                                                       {"eval", "x", "--corpus"},
                                                       {"generate", "x", "--length", "-1"},
                                                       {"generate", "x", "--temperature", "hot"},
                                                       {"generate", "x", "--top-p", "2"},
                                                       {"generate", "x", "--temperature", "nan"},
                                                       {"generate", "x", "--temperature", "-nan"},
                                                       {"generate", "x", "--top-p", "nan"},
                                                       {"generate", "x", "--seed", "18446744073709551616"},
                                                       {"generate", "x", "--seed", "-1"},
                                                       {"generate", "x", "--length", "99999999999999999999"},
                                                       {"needle", "x", "--lengths", "1k", "--seed", "1e30"},
                                                       {"bench"},
                                                       {"bench", "x", "--steps", "0"},
                                                       {"prepare", "--input", "x"}};
  for (const std::vector<std::string>& command : commands) EXPECT_FAULT(run_quire(command), 2, "--help");
}

TEST(UsageFaults, OfTrain) {
  const TinyRun tiny;
  EXPECT_FAULT(run_quire({"train"}), 2, "give a YAML file, or --resume RUN_DIR");
  EXPECT_FAULT(run_quire({"train", tiny.config().string(), "--drop-state"}), 2, "--drop-state needs --resume");
  ASSERT_EQ(tiny.train("run").code, 0);
  EXPECT_FAULT(run_quire({"train", "--resume", (tiny / "run").string(), "optimizer.lr=1", tiny.config().string()}), 2,
               "is not of the form key.path=value");
  EXPECT_FAULT(run_quire({"train", "--resume", "x", "--run-dir", "y"}), 2, "--run-dir has no meaning with --resume");
}

TEST(UsageFaults, OfPlannedScaling) {
  const TinyRun tiny;
  const auto plan = [&](const std::vector<std::string>& more, bool scaling = true) {
    std::vector<std::string> arguments{"plan", tiny.config().string()};
    if (scaling) arguments.emplace_back("--scaling");
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  };
  EXPECT_FAULT(plan({}), 2, "--scaling needs the time of a step: give --step-ms MS, or --probe to measure it");
  EXPECT_FAULT(plan({"--step-ms", "0"}), 2, "--step-ms 0: a step takes more than 0 ms");
  EXPECT_FAULT(plan({"--step-ms", "-3"}), 2, "--step-ms -3");
  EXPECT_FAULT(plan({"--step-ms", "nan"}), 2, "nan is not a finite number");
  EXPECT_FAULT(plan({"--step-ms", "5", "--probe"}), 2, "--probe excludes --step-ms");
  EXPECT_FAULT(plan({"--step-ms", "5", "--fixed-ms", "5"}), 2,
               "--fixed-ms 5: give at least 0 and less than --step-ms, 5");
  EXPECT_FAULT(plan({"--step-ms", "5", "--fixed-ms", "-1"}), 2, "--fixed-ms -1");
  EXPECT_FAULT(plan({"--step-ms", "5", "--backward-share", "1.5"}), 2, "must be at least 0 and at most 1, got 1.5");
  EXPECT_FAULT(plan({"--step-ms", "5", "--ranks-per-host", "0"}), 2, "must be at least 1");
  EXPECT_FAULT(plan({"--step-ms", "5", "--within-host", "400Gb/s"}), 2, "--within-host: 400Gb/s is no link");
  EXPECT_FAULT(plan({"--step-ms", "5", "--between-hosts", "400,1us"}), 2, "such as 400Gb/s,14us");
  EXPECT_FAULT(plan({"--step-ms", "5", "--control-latency", "5"}), 2, "5 is no latency");
  EXPECT_FAULT(plan({"--step-ms", "5", "--exchange", "tree"}), 2, "tree not in {ring,pairwise}");
  EXPECT_FAULT(plan({"--step-ms", "5", "-n", "4"}), 2, "-n 4: data.rows is 3");
  for (const std::string option : {"--step-ms", "--fixed-ms", "--backward-share", "--ranks-per-host"}) {
    EXPECT_FAULT(plan({option, "1"}, false), 2, option + " requires --scaling");
  }
}

TEST(UsageFaults, OfPreparedTasks) {
  const TemporaryDirectory folder;
  const auto prepare = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"prepare", "--output", (folder / "c.h5").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  };
  EXPECT_FAULT(prepare({"--task", "passkeys", "--split", "train=1"}), 2, "is no task; there is: passkey");
  EXPECT_FAULT(prepare({"--task", "passkey", "--split", "train=1", "--set", "length=40"}), 2,
               "length 40 is too short for task passkey");
  EXPECT_FAULT(prepare({"--task", "passkey", "--split", "train=1", "--set", "lenth=40"}), 2, "length");
  EXPECT_FAULT(prepare({"--task", "passkey", "--split", "train=1", "--set", "task=vt"}), 2, "--task names the task");
  EXPECT_FAULT(prepare({"--task", "passkey"}), 2, "--task needs --split NAME=COUNT");
  EXPECT_FAULT(prepare({"--task", "passkey", "--input", "x", "--split", "train=1"}), 2, "--input has no meaning");
  EXPECT_FAULT(prepare({"--task", "passkey", "--filler", "x", "--tokenizer", "byte", "--split", "train=1"}), 2,
               "--tokenizer has no meaning with --filler");
  EXPECT_FAULT(prepare({"--task", "passkey", "--split", "train=1", "--seed", "36893488147419103233"}), 2,
               "36893488147419103233 is not a whole number from 0 to 18446744073709551615");
  EXPECT_FAULT(prepare({"--input", "x", "--seed", "3"}), 2, "--seed has no meaning without --task");
  EXPECT_FALSE(std::filesystem::exists(folder / "c.h5"));
}

}  // namespace
}  // namespace quire::test
