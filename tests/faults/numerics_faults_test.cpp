// Values that overflow stop the run; what is on disk stays sound.
#include <cmath>

#include "tests/faults/expect_fault.h"

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
  ASSERT_EQ(tiny.resume("run", {"schedule.steps=20"}).code, 0);
  expect_finite_weights(tiny.checkpoint("run", 20));
}

}  // namespace
}  // namespace quire::test
