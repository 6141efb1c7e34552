// Training steps whose products were timed, the host in the GPU's place.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include "kernels/cuda/gemm.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

class TimedTraining : public ::testing::Test {
 protected:
  static RunConfig config(const std::vector<std::string>& settings = {}) {
    return parse_config<RunConfig>(R"(
run: {name: timed, device: cuda, precision: f32, products: timed}
data: {subsequence: 12, rows: 2}
model: {width: 16, layers: 1, heads: 2, position: {kind: xl}, mlp: {hidden: 24}, attention: {softmax: {carry: {kind: hidden, length: 8}}}}
optimizer: {lr: 0.01}
schedule: {warmup: 0, steps: 20}
)",
                                   "timed.yaml", settings);
  }

  void SetUp() override {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({90, 33, 21, 64})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
    begin_process();
  }
  void TearDown() override {
    shim::propose_products({0});
    begin_process();
  }

  // Nothing is chosen yet.
  static void begin_process() {
    cuda::time_products([] {}, shim::product_clock);
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(TimedTraining, ResumesBitForBit) {
  shim::propose_products({3, 1, -1, 2});
  TrainingRun straight(config(), *corpus_);
  const std::vector<std::string> lines = straight.choose_products();
  ASSERT_GT(lines.size(), 1U);
  EXPECT_NE(lines[1].find(": number 2 of 4, 1000.0000 ms for 3000.0000"), std::string::npos) << lines[1];
  straight.losses(3);

  begin_process();
  TrainingRun first(config(), *corpus_);
  first.choose_products();
  first.losses(2);
  const std::filesystem::path checkpoint = first.save(folder_ / "checkpoints");
  begin_process();
  shim::propose_products({1, 3, 2, 4});
  TrainingRun second(config(), *corpus_, checkpoint);
  const double before = shim::product_clock();
  EXPECT_EQ(second.choose_products(), std::vector<std::string>{"products: as they were chosen when the run began"});
  EXPECT_EQ(shim::product_clock(), before);
  const int taken_otherwise = shim::proposals_run(0);
  second.losses(1);
  EXPECT_EQ(shim::proposals_run(0), taken_otherwise);
  EXPECT_EQ(difference(straight.snapshot(), second.snapshot()), "");

  // Another choice gives other bits, or this would show nothing.
  begin_process();
  TrainingRun another(config({"run.products=first"}), *corpus_);
  EXPECT_TRUE(another.choose_products().empty());
  another.losses(3);
  EXPECT_NE(difference(straight.snapshot(), another.snapshot()), "");
}

TEST_F(TimedTraining, PassesOfAnotherSizeAreTimedAnew) {
  shim::propose_products({2, 1});
  TrainingRun first(config(), *corpus_);
  first.choose_products();
  first.losses(1);
  const std::filesystem::path checkpoint = first.save(folder_ / "checkpoints");
  begin_process();
  TrainingRun second(config({"data.accumulate=2"}), *corpus_, checkpoint);
  const std::vector<std::string> lines = second.choose_products();
  ASSERT_GT(lines.size(), 1U);
  EXPECT_NE(lines[0].find(" timed in "), std::string::npos) << lines[0];
}

// As a checkpoint of the CPU, or one whose run took the first proposals.
TEST_F(TimedTraining, ACheckpointWithoutChoicesIsTimed) {
  RunConfig on_cpu = config({"run.device=cpu"});
  TrainingRun first(on_cpu, *corpus_);
  EXPECT_EQ(first.choose_products(),
            std::vector<std::string>{"products: the run computes on no GPU, so that there is nothing to time"});
  first.losses(1);
  const std::filesystem::path checkpoint = first.save(folder_ / "checkpoints");
  shim::propose_products({2, 1});
  TrainingRun second(config(), *corpus_, checkpoint);
  EXPECT_GT(second.choose_products().size(), 1U);
}

TEST_F(TimedTraining, TimingChangesNoBit) {
  TrainingRun timed(config(), *corpus_);
  EXPECT_EQ(timed.choose_products().size(), 1U);  // nothing to choose from
  timed.losses(2);
  TrainingRun untimed(config({"run.products=first"}), *corpus_);
  untimed.losses(2);
  EXPECT_EQ(difference(timed.snapshot(), untimed.snapshot()), "");
}

// Of the two maps of a feed-forward layer.
TEST_F(TimedTraining, GradientsOfBiasesComeWithThoseOfWeights) {
  const auto of_step = [&](const char* products, std::vector<double>& losses) {
    TrainingRun run(config({"model.mlp={kind: gelu, hidden: 24, bias: true}", std::string("run.products=") + products}),
                    *corpus_);
    run.choose_products();
    const int before = shim::epilogues_run(CUBLASLT_EPILOGUE_BGRADB);
    losses = run.losses(2);
    return (shim::epilogues_run(CUBLASLT_EPILOGUE_BGRADB) - before) / 2;
  };
  std::vector<double> untimed, timed;
  EXPECT_EQ(of_step("first", untimed), 0);
  EXPECT_EQ(of_step("timed", timed), 2);
  for (size_t step = 0; step < untimed.size(); ++step) EXPECT_NEAR(timed[step], untimed[step], 1e-5 * untimed[step]);
}

}  // namespace
}  // namespace quire::test
