// Training steps of several ranks whose gradients and weights travel over NCCL, the host in the GPU's place.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "core/error.h"
#include "tests/kernels/cuda/nccl_ranks.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"
#include "trainers/setup/gradient_reducer.h"

namespace quire::test {
namespace {

constexpr const char* kConfig = R"(
run: {name: nccl, precision: f32}
data: {subsequence: 8, rows: 3}
model: {width: 16, layers: 2, heads: 2, position: {kind: xl}, mlp: {hidden: 24}, attention: {softmax: {carry: {kind: hidden, length: 8}}}}
optimizer: {lr: 0.01}
schedule: {warmup: 0, steps: 20}
)";
constexpr int kRanks = 3;
constexpr int kSteps = 3;

class NcclTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({90, 33, 21, 64})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }

  struct Result {
    std::vector<double> losses;
    std::vector<float> weights;
  };
  // By rank.
  std::vector<Result> train(const std::string& device) {
    std::vector<Result> results(kRanks);
    run_in_process(kRanks, [&](Ranks& ranks) {
      // Kernels of the host in the GPU's place run on the thread of the rank, which is the stream nullptr.
      if (device == "cuda") ranks.use(connect_nccl(ranks, nccl_place(ranks, nullptr)).collectives);
      TrainingRun run(parse_config<RunConfig>(kConfig, "nccl.yaml", {"run.device=" + device}), *corpus_, &ranks);
      Result& result = results[static_cast<size_t>(ranks.rank())];
      for (int step = 0; step < kSteps; ++step) {
        result.losses.push_back(run.step().loss);
      }
      result.weights = run.training().store.values().to_vector<float>();
    });
    return results;
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(NcclTraining, GivesTheLossesOfTheCpuAndTheSameBitsAgain) {
  const std::vector<Result> cpu = train("cpu");
  const std::vector<Result> gpu = train("cuda");
  for (const Result& result : gpu) {
    EXPECT_EQ(result.weights, gpu[0].weights);
    EXPECT_EQ(result.losses, gpu[0].losses);
  }
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(gpu[0].losses[step], cpu[0].losses[step], 1e-5 * cpu[0].losses[step]) << "step " << step + 1;
  }
  const std::vector<Result> again = train("cuda");
  EXPECT_EQ(again[0].losses, gpu[0].losses);
  EXPECT_EQ(again[0].weights, gpu[0].weights);
}

// The sweep goes on to the first parameter when the sum of the second one is there.
TEST(NcclGradients, AreSummedWhileTheSweepGoesOn) {
  run_in_process(2, [](Ranks& ranks) {
    ranks.use(connect_nccl(ranks, nccl_place(ranks, nullptr)).collectives);
    const Device gpu{DeviceKind::cuda, 0};
    ParameterStore store;
    const Parameter made_first(store.parameter("first", {40, 40}, Initializer::constant(1), true));
    const Parameter made_second(store.parameter("second", {40, 40}, Initializer::constant(1), true));
    const Variable& first = made_first;
    const Variable& second = made_second;
    store.allocate(DType::f64, gpu, 1);
    const ParameterParts parts(store, {ranks.rank(), ranks.size()}, ParameterParts::Cut::anywhere, 1600);
    ASSERT_EQ(parts.buckets().size(), 2U);
    GradientReducer reducer(store, parts);
    for (int step = 0; step < 2; ++step) {
      store.zero_gradients();
      const int64_t before = ranks.collectives().finished();
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      Tape tape;
      const Variable x = tape.result("first", first.value(), {&first}, [&](const Tensor& dvalue) {
        while (step > 0 && ranks.collectives().finished() == before && std::chrono::steady_clock::now() < limit) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_TRUE(step == 0 || ranks.collectives().finished() > before);
        first.gradient()->add(dvalue);
      });
      const Variable y = tape.result("second", second.value(), {&x, &second}, [&](const Tensor& dvalue) {
        second.gradient()->add(dvalue);
        x.gradient()->add(dvalue);
      });
      reducer.watch(tape, ranks);
      tape.backward(y, Tensor::from(std::vector<double>(1600, 3), {40, 40}, gpu));
      reducer.flush(ranks);
      if (step == 0) {
        EXPECT_EQ(reducer.overlap(), 0);  // the first sweep tells the order
      } else {
        EXPECT_GE(reducer.overlap(), 0.5);  // the other half may just have ended, too
      }
      ranks.collectives().wait();
      for (const ArenaRange& range : parts.mine()) {
        const std::vector<double> sums = store.gradients().slice(0, range.begin, range.end).to_vector<double>();
        EXPECT_EQ(sums, std::vector<double>(sums.size(), 6));
      }
    }
  });
}

TEST_F(NcclTraining, EndsWithOneErrorInTheMiddleOfAStep) {
  const Injection injection("error@1:8=3");
  try {
    train("cuda");
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("rank 1 on localhost, step ")) << message;
    EXPECT_NE(message.find("NCCL: internal error"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace quire::test
