// Whole runs on a GPU beside the same runs on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>

#include "core/error.h"
#include "kernels/backend.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/setup/attention_choice.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

constexpr const char* kConfig = R"(
run: {name: gpu, precision: f32}
data: {subsequence: 24, rows: 2}
model:
  width: 16
  layers: 2
  heads: 2
  position: {kind: xl}
  mlp: {hidden: 24}
  attention: {softmax: {carry: {kind: hidden, length: 20}}}
optimizer: {lr: 0.003}
schedule: {warmup: 5, steps: 100}
evaluate: {rows: 2}
)";

RunConfig config(const std::vector<std::string>& settings) {
  return parse_config<RunConfig>(kConfig, "gpu.yaml", settings);
}

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = missing_cuda_device();
    if (!missing.empty()) GTEST_SKIP() << missing;
    write_corpus(folder_ / "corpus.h5",
                 {{"train", texts_of_lengths({90, 33, 210, 64, 7, 128})}, {"valid", texts_of_lengths({150, 31})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

// Fewer where the host stands in for the GPU and every thread is a fiber.
int64_t steps(int64_t on_gpu, int64_t on_host) {
  return load_cuda().gpu == "cuda_shim" ? on_host : on_gpu;
}

// A checkpoint of a model whose losses follow from what its attention sees. It was trained until it knows its texts,
// then matrices are made larger: attention turns to few keys, and logits are far apart. One key more or less changes a
// loss by percents, where it changes that of new weights by less than rounding does.
std::filesystem::path sharp_model(RunConfig trained, Corpus& corpus, const std::filesystem::path& folder) {
  trained.run.device = DeviceChoice::cpu;
  trained.optimizer.lr = 0.01;
  TrainingRun run(trained, corpus);
  run.losses(40);
  for (const ParameterStore::Entry& entry : run.training().store.entries()) {
    if (entry.shape.rank() < 2) continue;
    const Tensor value = entry.variable.value();
    for (int64_t i = 0; i < value.numel(); ++i) value.data<float>()[i] *= 2;
  }
  return run.save(folder);
}

// Sums are grouped otherwise and f32 rounds: 1e-7 a step, which the steps in between carry on. A window that is off by
// one changes the second loss by 1 % or more. What rounding does to logits does not become less with the loss. AdamW
// divides by the root of the second moment plus epsilon: with 1e-8, a weight whose gradient is nothing but rounding,
// 1e-8, moves by the whole rate either way. With 1e-5 it moves by a thousandth of that, 3e-6 a step, so that after 50
// steps losses agree to 1e-4.
TEST_F(CudaTraining, FiftyStepsGiveTheLossesOfTheCpu) {
  const std::vector<std::vector<std::string>> models{
      {"model.attention.softmax.carry.kind=hidden"},
      {"model.position.kind=t5", "model.attention.softmax.carry.kind=kv", "model.attention.softmax.window=20",
       "model.attention.softmax.qk_norm=true", "model.mlp={kind: gelu, hidden: 40, bias: true}"},
      {"model.position.kind=rope", "model.key_heads=1", "model.attention.softmax.carry.kind=kv",
       "model.dropout.attention=0.2", "model.norm.kind=layer"},
      {"model.position.kind=alibi", "data.pack=concat", "model.embedding.tied=false", "optimizer.kind=adafactor"}};
  int number = 0;
  for (const std::vector<std::string>& model : models) {
    const auto on = [&](const char* device) {
      std::vector<std::string> settings = model;
      settings.push_back(std::string("run.device=") + device);
      if (model.back() != "optimizer.kind=adafactor") settings.push_back("optimizer.eps=1e-5");
      return config(settings);
    };
    const std::filesystem::path begun = sharp_model(on("cpu"), *corpus_, folder_ / std::to_string(++number));
    TrainingRun cpu(on("cpu"), *corpus_, begun);
    TrainingRun gpu(on("cuda"), *corpus_, begun);
    EXPECT_EQ(gpu.machine().device.kind, DeviceKind::cuda);
    for (int64_t step = 1; step <= steps(50, 3); ++step) {
      const double expected = cpu.step().loss;
      EXPECT_NEAR(gpu.step().loss, expected, 1e-4 * std::max(expected, 0.1)) << model[0] << ", step " << step;
    }
  }
}

// On the host the library in cuDNN's place computes in f32, on a GPU cuDNN in bf16. With `pad` rows end in padding, and
// documents begin with an empty cache; with `concat` a row goes on with the next document.
TEST_F(CudaTraining, AttentionInCudnnTrainsAsOwnKernelsDo) {
  const bool on_host = load_cuda().gpu == "cuda_shim";
  const std::filesystem::path begun =
      sharp_model(config({"model.position.kind=rope", "model.key_heads=1", "model.attention.softmax.window=9",
                          "model.attention.softmax.carry={kind: none, length: none}"}),
                  *corpus_, folder_ / "cudnn");
  std::map<std::string, double> padded;  // last losses with `pad`
  for (const char* pack : {"pad", "concat"}) {
    for (const char* cache : {"{kind: none, length: none}", "{kind: kv, length: 9}", "{kind: hidden, length: 5}"}) {
      SCOPED_TRACE(std::string(pack) + ", " + cache);
      const auto with = [&](const char* implementation) {
        return config({"run.device=cuda", "model.position.kind=rope", "model.key_heads=1",
                       "model.attention.softmax.window=9", std::string("data.pack=") + pack,
                       std::string("model.attention.softmax.carry=") + cache,
                       std::string("model.attention.softmax.implementation=") + implementation,
                       std::string("run.precision=") + (on_host ? "f32" : "bf16")});
      };
      if (!on_host) {
        try {
          require_attention(with("cudnn"), Machine::choose(with("cudnn").run), {});
        } catch (const Error& error) {
          GTEST_SKIP() << error.what();
        }
      }
      TrainingRun own(with("own"), *corpus_, begun, true);
      TrainingRun cudnn(with("cudnn"), *corpus_, begun, true);
      for (int64_t step = 1; step <= steps(20, 3); ++step) {
        const double expected = own.step().loss;
        EXPECT_NEAR(cudnn.step().loss, expected, (on_host ? 1e-4 : 4e-3) * std::max(expected, 0.1)) << step;
        if (step == steps(20, 3) && !padded.emplace(cache, expected).second) {
          EXPECT_NE(expected, padded[cache]) << "no row held several documents";
        }
      }
    }
  }
}

// 8 bits of significand: losses of the first steps differ by what rounding of activations does, some 2e-3 of a loss, a
// quarter of what a window off by one does. Later steps have other weights.
TEST_F(CudaTraining, Bf16FollowsF32) {
  const std::filesystem::path begun = sharp_model(config({}), *corpus_, folder_ / "sharp");
  // Without the caches, which are stored in the precision of the run.
  TrainingRun full(config({"run.device=cpu"}), *corpus_, begun, true);
  TrainingRun mixed(config({"run.device=cuda", "run.precision=bf16"}), *corpus_, begun, true);
  EXPECT_EQ(mixed.machine().dtype, DType::bf16);
  EXPECT_EQ(mixed.training().store.values().dtype(), DType::f32);
  for (int64_t step = 1; step <= steps(30, 3); ++step) {
    const double expected = full.step().loss;
    const double loss = mixed.step().loss;
    EXPECT_NEAR(loss, expected, (step <= 3 ? 0.005 : 0.02) * expected) << "step " << step;
    EXPECT_GT(std::abs(loss - expected), 1e-6 * expected) << "step " << step << " was computed in f32";
  }
}

// Every mechanism with memory that it carries along documents, rows that end in padding and rows that go on with the
// next document. What rounds may choose other entries, blocks, chunks or codewords: losses in bf16 may differ by more
// than in the test before.
TEST_F(CudaTraining, MechanismsTrainAsOnTheCpu) {
  const std::vector<std::vector<std::string>> mechanisms{
      {"model.memory=[{kind: knn, layers: [-1], carry: {length: 48}, top_k: 4}]"},
      {"model.position.kind=rope", "data.subsequence=27",
       "model.attention={kind: landmark, landmark: {block: 8, top_k: 2, carry: {length: 20, in_training: true}}}"},
      {"model.position.kind=rope", "model.attention={kind: moba, moba: {block: 8, top_k: 3, carry: {length: 20}}}"},
      {"model.position.kind=rope", "data.subsequence=27",
       "model.attention={kind: hils, hils: {chunk: 8, window: 10, top_k: 2, carry: {length: 20}}}"},
      {"model.position.kind=alibi", "data.subsequence=27",
       "model.attention={softmax: {carry: {kind: none, length: none}}}", "model.layers=3",
       "model.stack={kind: drt, drt: {chunk: 8, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {length: 40}}}"},
      {"model.heads=1", "model.attention={kind: vq, vq: {window: 12, codes: 16, block: 12, value_size: 24}}"},
      {"model.heads=1", "model.attention={kind: vq, vq: {window: 12, codes: 16, block: 12, value_size: 136}}"},
  };
  int number = 0;
  for (const std::vector<std::string>& mechanism : mechanisms) {
    for (const char* pack : {"pad", "concat"}) {
      SCOPED_TRACE(mechanism.back() + ", " + pack);
      const auto with = [&](const std::vector<std::string>& others) {
        std::vector<std::string> settings = mechanism;
        settings.push_back(std::string("data.pack=") + pack);
        settings.insert(settings.end(), others.begin(), others.end());
        return config(settings);
      };
      const std::filesystem::path begun = sharp_model(with({}), *corpus_, folder_ / std::to_string(++number));
      TrainingRun cpu(with({"run.device=cpu"}), *corpus_, begun, true);
      TrainingRun gpu(with({"run.device=cuda"}), *corpus_, begun, true);
      TrainingRun mixed(with({"run.device=cuda", "run.precision=bf16"}), *corpus_, begun, true);
      for (int64_t step = 1; step <= 3; ++step) {
        const double expected = cpu.step().loss;
        EXPECT_NEAR(gpu.step().loss, expected, 1e-4 * expected) << "step " << step;
        EXPECT_NEAR(mixed.step().loss, expected, 0.02 * expected) << "step " << step;
      }
    }
  }
}

TEST_F(CudaTraining, ResumesBitForBit) {
  for (const auto& [precision, optimizer] : {std::pair{"f32", "adamw"}, {"bf16", "adafactor"}}) {
    const RunConfig run = config({"run.device=cuda", std::string("run.precision=") + precision,
                                  std::string("optimizer.kind=") + optimizer, "model.dropout.residual=0.1"});
    const int64_t before = steps(7, 2);
    const int64_t after = steps(5, 1);
    TrainingRun straight(run, *corpus_);
    straight.losses(before + after);
    TrainingRun first(run, *corpus_);
    first.losses(before);
    TrainingRun second(run, *corpus_, first.save(folder_ / precision));
    second.losses(after);
    EXPECT_EQ(difference(straight.snapshot(), second.snapshot()), "") << precision << ", " << optimizer;
  }
}

TEST_F(CudaTraining, EvaluatesAsTheCpuDoes) {
  const RunConfig gpu_config = config({"run.device=cuda"});
  const RunConfig cpu_config = config({"run.device=cpu"});
  TrainingRun gpu(gpu_config, *corpus_);
  gpu.losses(steps(10, 2));
  const std::filesystem::path checkpoint = gpu.save(folder_ / "evaluated");
  TrainingRun cpu(cpu_config, *corpus_, checkpoint);
  EvaluationOptions options;
  options.split = "valid";
  options.rows = 2;
  const auto result = [&](TrainingRun& run, const RunConfig& of) {
    return evaluate(run.training().store, evaluation_config(of), *corpus_, run.machine(), options).nll;
  };
  const double expected = result(cpu, cpu_config);
  EXPECT_NEAR(result(gpu, gpu_config), expected, 1e-5 * expected);
}

// A learning rate that no run survives: the first step that fails is named, whenever the host looks.
TEST_F(CudaTraining, NonfiniteStepIsNamed) {
  TrainingRun run(config({"run.device=cuda", "optimizer.lr=1e30", "optimizer.clip=0", "schedule.warmup=0"}), *corpus_);
  int64_t done = 0;
  try {
    while (done < 20) {
      run.step();
      ++done;
    }
    FAIL() << "20 steps with finite losses";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_NE(std::string(error.what()).find("step " + std::to_string(done + 1)), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace quire::test
