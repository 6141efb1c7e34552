// Tests runs that are trained on a mixture of corpora and tasks.
#include "tests/faults/expect_fault.h"

namespace quire::test {
namespace {

class MixtureRun : public ::testing::Test {
 protected:
  static std::vector<std::string> with(const std::string& mix, std::vector<std::string> overrides = {}) {
    overrides.insert(overrides.begin(), "data.mix=" + mix);
    return overrides;
  }
  std::string corpus() const { return tiny_.corpus().string(); }
  std::string mix() const {
    return "[{corpus: " + corpus() +
           "}, {task: passkey, length: 90, loss: answer}, {task: recall, corpus: " + corpus() +
           ", split: valid, length: 120, nearest: 40, farthest: 60}]";
  }
  TinyRun tiny_;
};

TEST_F(MixtureRun, GoesOnBitForBit) {
  ASSERT_EQ(tiny_.train("whole", with(mix())).code, 0);
  // Every step has targets, and the finite loss of a mixture.
  for (const auto& line : read_metrics(tiny_ / "whole/metrics.jsonl")) EXPECT_TRUE(line["loss"].is_number()) << line;
  ASSERT_EQ(tiny_.train("parts", with(mix(), {"checkpoint.every=7"})).code, 0);
  const auto resumed = run_quire(tiny_.resume_arguments(tiny_.checkpoint("parts", 7), {"checkpoint.every=10"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("data.mix.1: passkey, "), std::string::npos) << resumed.err;
  expect_same_checkpoint(tiny_.checkpoint("whole", 20), tiny_.checkpoint("parts", 20));
  EXPECT_EQ(comparable_metrics(tiny_ / "whole"), comparable_metrics(tiny_ / "parts"));
}

TEST_F(MixtureRun, OnlyTheSameCorporaGoOn) {
  std::filesystem::copy_file(tiny_.corpus(), tiny_ / "b.h5");
  std::filesystem::copy_file(tiny_.corpus().string() + ".manifest", tiny_ / "b.h5.manifest");
  ASSERT_EQ(tiny_.train("run", with("[{corpus: " + (tiny_ / "b.h5").string() + "}]", {"schedule.steps=2"})).code, 0);
  write_corpus(tiny_ / "b.h5", {{"train", texts_of_lengths({80, 20})}}, {.any_bytes = false, .force = true});
  EXPECT_FAULT(tiny_.resume("run", {"schedule.steps=4"}), 3, "data.mix: a corpus is not the one");
}

TEST_F(MixtureRun, PlanAndBenchNeedNoDocuments) {
  const std::vector<std::string> overrides = with("[{task: passkey, length: 90}]");
  for (const char* verb : {"plan", "bench"}) {
    std::vector<std::string> arguments{verb, tiny_.config().string(), overrides[0]};
    if (std::string(verb) == "bench") arguments.insert(arguments.end(), {"--steps", "1", "--warmup", "0"});
    const ProgramResult result = run_quire(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
  }
}

// Files that give data.split its default value, as the quickstart does, and saved configurations, which give every key.
TEST_F(MixtureRun, IsAddedToAConfigurationByAnOverride) {
  const std::string readme = "data.mix=[{corpus: books.h5, weight: 3}, {task: passkey, length: 4096}]";
  const ProgramResult quickstart =
      run_quire({"config", QUIRE_SOURCE_DIR "/configs/quickstart.yaml", readme, "--print"});
  EXPECT_EQ(quickstart.code, 0) << quickstart.err;
  ASSERT_EQ(tiny_.train("run", {"data.split=valid", "schedule.steps=2"}).code, 0);
  const ProgramResult saved =
      run_quire({"train", (tiny_ / "run/config.yaml").string(), "data.mix=[{task: passkey, length: 90}]", "--run-dir",
                 (tiny_ / "mixed").string()});
  EXPECT_EQ(saved.code, 0) << saved.err;
}

TEST_F(MixtureRun, WhatCannotBeIsRefusedBeforeAnythingBegins) {
  const auto expect = [&](const std::string& mix, int code, const std::string& part,
                          const std::vector<std::string>& more = {}) {
    EXPECT_FAULT(tiny_.train("run", with(mix, more)), code, part);
    EXPECT_FALSE(std::filesystem::exists(tiny_ / "run"));
  };
  expect("[{weight: 1}]", 2, "an entry of data.mix needs a corpus or a task");
  expect("[{task: passkeys}]", 2, "is no task");
  expect("[{task: passkey, length: 30}]", 2, "data.mix.0: length 30 is too short for task passkey");
  expect("[{corpus: x.h5}]", 3, "x.h5: no such corpus");
  expect("[{corpus: " + corpus() + ", split: test}]", 2, "no split \"test\"");
  expect("[{task: passkey, split: valid}]", 2, "there is no corpus beside it");
  expect("[{corpus: " + corpus() + ", length: 100}]", 2, "it belongs to a task");
  expect("[{task: passkey, weight: 0}]", 2, "weight");
  expect("[{task: passkey}]", 2, "data.mix is read by documents", {"data.sampling=windows"});
  expect("[{task: passkey}]", 2, "data.mix says what is trained on", {"data.split=valid"});
}

}  // namespace
}  // namespace quire::test
