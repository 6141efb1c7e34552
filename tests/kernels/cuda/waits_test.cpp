// A step gives the device its work and goes on: the host waits when it wants to know, and only then.
#include "tests/kernels/cuda/waits.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/support/cuda_shim/device_memory.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"
#include "trainers/step/nonfinite.h"

namespace quire::test {
namespace {

// In all tests of this program the host does not reach what is on the device.
const bool g_guarded = [] {
  shim::guard_device_memory();
  return true;
}();

constexpr const char* kConfig = R"(
run: {name: waits, device: cuda, precision: bf16}
data: {subsequence: 8, rows: 2, accumulate: 2}
model: {width: 8, layers: 1, heads: 2, position: {kind: xl}, mlp: {hidden: 8}, attention: {softmax: {carry: {kind: hidden, length: 8}}}}
optimizer: {lr: 0.01, ema: {decay: 0.9}}
schedule: {warmup: 0, steps: 20}
)";

class Waits : public ::testing::Test {
 protected:
  void SetUp() override {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({90, 33, 21})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(Waits, NoneInAStepThatIsNotLookedAt) {
  TrainingRun run(parse_config<RunConfig>(kConfig, "waits.yaml"), *corpus_);
  const int64_t before = waits_for_device();
  for (int step = 0; step < 3; ++step) EXPECT_FALSE(run.step(ReadResult::when_free).read);
  EXPECT_TRUE(g_guarded);
  EXPECT_EQ(waits_for_device(), before);
  EXPECT_TRUE(run.step().read);
  EXPECT_GT(waits_for_device(), before);
}

// The step that fails is named by whoever looks next, and no later one has changed a weight.
TEST_F(Waits, AFailureIsKeptUntilSomebodyLooks) {
  TrainingRun run(parse_config<RunConfig>(kConfig, "waits.yaml", {"optimizer.clip=0"}), *corpus_);
  run.step();
  const Tensor& weights = run.training().store.values();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> good = weights.slice(0, 0, 1).to_vector<float>();
  weights.slice(0, 0, 1).upload(&nan, 1);
  run.training().store.publish();
  run.step(ReadResult::when_free);
  weights.slice(0, 0, 1).upload(good.data(), 1);
  run.training().store.publish();
  const std::vector<float> kept = weights.to_vector<float>();
  run.step(ReadResult::when_free);
  EXPECT_EQ(weights.to_vector<float>(), kept);
  try {
    require_finite(run.training());
    FAIL() << "nobody was told";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_NE(std::string(error.what()).find("step 2: loss nan"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quire::test
