// Values that overflow stop the run; what is on disk stays sound.
#include <cmath>
#include <cstring>

#include "tests/faults/expect_fault.h"
#include "tests/support/checkpoint_edit.h"

namespace quire::test {
namespace {

void expect_finite_weights(const std::filesystem::path& checkpoint) {
  for (const NamedTensor& tensor : CheckpointReader::open(checkpoint).read_part("model").tensors) {
    for (const double value : values_of(tensor.tensor)) ASSERT_TRUE(std::isfinite(value)) << tensor.name;
  }
}

TEST(NumericsFaults, AHugeLearningRateNamesTheStep) {
  const TinyRun tiny;
  for (const char* rate : {"1e20", "1e30", "1e37", "1e39", "1e300"}) {
    const ProgramResult result = tiny.train(
        rate, {std::string("optimizer.lr=") + rate, "optimizer.clip=0", "schedule.warmup=0", "checkpoint.every=1"});
    EXPECT_EQ(result.code, 5) << rate << result.err;
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    EXPECT_NE(result.errors().front().find(": step "), std::string::npos) << result.err;
    EXPECT_NE(result.errors().front().find("optimizer.lr"), std::string::npos) << result.err;
    for (const int64_t step : checkpoint_steps(tiny / rate / "checkpoints"))
      expect_finite_weights(tiny.checkpoint(rate, step));
  }
}

TEST(NumericsFaults, ARunThatOverflowsKeepsItsCheckpointAndGoesOn) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10", "schedule.kind=constant"}).code, 0);
  const ProgramResult result =
      tiny.resume("run", {"schedule.steps=20", "optimizer.lr=1e39", "checkpoint.on_error=warn", "checkpoint.every=1"});
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), (std::vector<int64_t>{10}));
  expect_finite_weights(tiny.checkpoint("run", 10));
  // The run continues with the rate that it was given until it gets another one.
  const ProgramResult again = tiny.resume("run");
  EXPECT_EQ(again.code, 5) << again.err;
  EXPECT_NE(again.err.find("optimizer.lr 0.01 -> 1e+39 from step 10"), std::string::npos) << again.err;
  ASSERT_EQ(tiny.resume("run", {"optimizer.lr=1e-2"}).code, 0);
  expect_finite_weights(tiny.checkpoint("run", 20));
}

// Skipping cannot mend weights that have overflowed: it gives up, and the last checkpoint is sound.
TEST(NumericsFaults, SkipsEndWhenTheyDoNotHelp) {
  const TinyRun tiny;
  const ProgramResult result = tiny.train("run", {"optimizer.lr=1e30", "optimizer.clip=0", "schedule.warmup=0",
                                                  "run.on_nonfinite={policy: skip, max_skips: 2}", "log.every=100"});
  EXPECT_EQ(result.code, 5) << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors().front().find("so were the 2 steps before it (run.on_nonfinite.max_skips)"),
            std::string::npos)
      << result.err;
  for (const char* warning : {"1 in a row, more than 2 end the run", "2 in a row, more than 2 end the run"}) {
    EXPECT_NE(result.err.find(warning), std::string::npos) << result.err;
  }
  const auto lines = comparable_metrics(tiny / "run");  // skipped steps are logged whatever log.every is
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["skipped"], 1);
  EXPECT_EQ(lines[1]["skipped"], 2);
  EXPECT_TRUE(lines[1]["loss"].is_null() || lines[1]["grad_norm"].is_null());
}

// A checkpoint whose carried state holds a NaN: the row begins anew, and the run goes on from every later checkpoint
// as if it had not stopped.
TEST(NumericsFaults, ARunSkipsAStepAndGoesOn) {
  const TinyRun tiny;
  const std::vector<std::string> options{"run.on_nonfinite={policy: skip}", "schedule.steps=6", "checkpoint.every=1",
                                         "checkpoint.keep=100"};
  ASSERT_EQ(tiny.train("run", options).code, 0);
  const std::string part = "state-00000000-00000003";
  edit_description(tiny.checkpoint("run", 3), part, [](const nlohmann::ordered_json& rows) {
    for (const auto& one : rows.at("parts")) ASSERT_EQ(one.at("dtype"), "f32") << one;
  });
  edit_rows(tiny.checkpoint("run", 3), part, [](size_t row, std::span<std::byte> bytes) {
    const float nan = NAN;
    for (size_t i = 0; row == 0 && i < bytes.size(); i += sizeof(nan)) std::memcpy(&bytes[i], &nan, sizeof(nan));
  });
  const ProgramResult skipped = run_quire(tiny.resume_arguments(tiny.checkpoint("run", 3)));
  ASSERT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(
      skipped.err.find("quire: warning: step 4: loss nan and gradient norm nan: no update, 1 of 3 rows begin anew"),
      std::string::npos)
      << skipped.err;
  const auto lines = comparable_metrics(tiny / "run");
  EXPECT_EQ(lines.at(3)["skipped"], 1);
  EXPECT_TRUE(lines.at(3)["loss"].is_null());
  EXPECT_EQ(lines.at(5)["skipped"], 1);
  EXPECT_TRUE(lines.at(5)["loss"].is_number());
  std::filesystem::copy(tiny / "run", tiny / "again", std::filesystem::copy_options::recursive);
  ASSERT_EQ(run_quire(tiny.resume_arguments(tiny.checkpoint("again", 4))).code, 0);
  EXPECT_EQ(comparable_metrics(tiny / "again"), lines);
  expect_same_checkpoint(tiny.checkpoint("again", 6), tiny.checkpoint("run", 6));
}

}  // namespace
}  // namespace quire::test
