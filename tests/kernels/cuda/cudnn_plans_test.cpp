// cuDNN's plans of attention, built for GPUs that are not at hand: it checks the graphs and compiles their kernels.
// tests/support/cuda_driver_stand_in is its driver meanwhile.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "kernels/cuda/cudnn/cudnn_library.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"
#include "layers/model/attention_calls.h"
#include "tests/support/expect_error.h"
#include "trainers/setup/config.h"

namespace quire::test {
namespace {

// Describes a GPU to cuDNN. Numbers are those of NVIDIA's data sheets and CUDA's programming guide.
struct Gpu {
  const char* name;
  int chip;
  int multiprocessors;
  int shared_bytes;  // of a block, at most
  int64_t l2_bytes;
  int64_t memory_bytes;
};
constexpr Gpu kA100{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040, 84987740160};
constexpr Gpu kH100{"NVIDIA H100 80GB HBM3", 90, 132, 232448, 52428800, 85017624576};

cuda::CudnnTarget target_of(const Gpu& gpu) {
  return {.chip = gpu.chip,
          .properties = fmt::format(
              R"({{"deviceName": "{}", "deviceVer": {}, "driverVer": 13000, "cudaDeviceId": 0, "pciDeviceId": 0,
                   "multiProcessorCount": {}, "maxSharedMemoryPerBlockOptin": {}, "l2CacheSize": {},
                   "totalGlobalMem": {}, "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024,
                   "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "warpSize": 32,
                   "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
                   "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1410000,
                   "memClockRateKHz": 1593000}})",
              gpu.name, gpu.chip * 10, gpu.multiprocessors, gpu.shared_bytes, gpu.l2_bytes, gpu.memory_bytes)};
}

class CudnnPlansOf : public ::testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    try {
      cuda::load_cudnn();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<cuda::CudnnPlans> build(const AttentionProblem& problem) const {
    return cuda::build_cudnn_plans(cuda::shape_of(problem), target_of(GetParam()));
  }
};

constexpr AttentionProblem kPlain{.rows = 2, .queries = 128, .heads = 4, .kv_heads = 4, .size = 64, .value_size = 64};

// Plans of memory count this much, and no more than a third too much.
void expect_as_planned(const cuda::CudnnPlans& plans, const AttentionProblem& problem) {
  const int64_t planned = cudnn_backward_workspace(problem);
  EXPECT_LE(plans.backward_workspace(), planned);
  EXPECT_GE(plans.backward_workspace() + (int64_t{64} << 10), planned * 2 / 3);
  EXPECT_LE(plans.forward_workspace(), kCudnnForwardWorkspaceBytes);
}

std::vector<AttentionProblem> covered_forms() {
  AttentionProblem window = kPlain;
  window.window = 31;
  AttentionProblem ring = kPlain;
  ring.carried = 65;
  AttentionProblem all = ring;
  all.window = 100;
  all.kv_heads = 2;
  all.queries = 77;
  AttentionProblem many = all;
  many.rows = 33;
  many.size = many.value_size = 128;
  AttentionProblem small = all;
  small.size = small.value_size = 8;
  return {kPlain, window, ring, all, many, small};
}

TEST_P(CudnnPlansOf, AreBuiltForEveryFormThatIsCovered) {
  for (const AttentionProblem& problem : covered_forms()) {
    SCOPED_TRACE(problem.to_string());
    ASSERT_EQ(why_not_in_cudnn(problem), "");
    const auto plans = build(problem);
    // A product for each query and key: the deterministic backward pass needs room.
    EXPECT_GT(plans->backward_workspace(), 0);
    expect_as_planned(*plans, problem);
  }
}

// Before Hopper cuDNN's backward pass of ragged tensors is not deterministic, and so there is none.
TEST_P(CudnnPlansOf, AreBuiltForSeveralDocumentsInARowFromHopperOn) {
  for (AttentionProblem problem : covered_forms()) {
    problem.several_documents = true;
    SCOPED_TRACE(problem.to_string());
    ASSERT_EQ(why_not_in_cudnn(problem), "");
    if (GetParam().chip < 90) {
      EXPECT_ERROR(build(problem), ErrorKind::config,
                   "several documents in a row (data.pack: concat), backward pass: Deterministic algorithm is not "
                   "supported");
    } else {
      expect_as_planned(*build(problem), problem);
    }
  }
}

TEST_P(CudnnPlansOf, LargestHeads) {
  AttentionProblem problem = kPlain;
  for (const int64_t size : {8, 128, 256}) {
    problem.size = problem.value_size = size;
    if (size > 128 && GetParam().chip < 90) {
      EXPECT_ERROR(build(problem), ErrorKind::config, "128");
    } else {
      EXPECT_NE(build(problem), nullptr) << size;
    }
    if (GetParam().chip < 90) continue;
    AttentionProblem several = problem;
    several.several_documents = true;
    EXPECT_NE(build(several), nullptr) << size;
  }
}

// Rows of so many queries need more workspace than there is: those of DRT's paper.
constexpr int64_t kLong = 16384;

// The softmax layers of every configuration in configs/: with what it says, or why cuDNN cannot; and with rotary
// positions, which cuDNN can. All of them with one document in a row, and with several.
TEST_P(CudnnPlansOf, ConfigurationsOfTheRepository) {
  std::map<std::string, AttentionProblem> problems;
  int refused = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(QUIRE_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const RunConfig as_it_is = load_config<RunConfig>(entry.path().string());
    RunConfig config = as_it_is;
    config.model.position.kind = Position::rope;
    config.model.dropout.attention = 0;
    const auto before = attention_calls(as_it_is.model, as_it_is.data.rows, as_it_is.data.subsequence,
                                        as_it_is.data.pack == Pack::concat, DType::bf16);
    for (const AttentionCall& call : before) {
      if (call.why_not_cudnn.empty()) problems.emplace(call.problem.to_string(), call.problem);
      refused += call.why_not_cudnn.empty() ? 0 : 1;
    }
    const int64_t rows = (config.data.rows + config.data.accumulate - 1) / config.data.accumulate;
    for (const bool several_documents : {false, true}) {
      for (const AttentionCall& call :
           attention_calls(config.model, rows, config.data.subsequence, several_documents, DType::bf16)) {
        if (call.why_not_cudnn.empty()) problems.emplace(call.problem.to_string(), call.problem);
      }
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GE(problems.size(), 12U);
  for (const auto& [name, problem] : problems) {
    SCOPED_TRACE(name);
    ASSERT_EQ(why_not_in_cudnn(problem), "");
    if (problem.several_documents && GetParam().chip < 90) {
      EXPECT_ERROR(build(problem), ErrorKind::config, "several documents in a row");
    } else if (problem.queries < kLong) {
      expect_as_planned(*build(problem), problem);
    } else {
      EXPECT_ERROR(build(problem), ErrorKind::config, "no plan needs at most 512 MiB of workspace");
      EXPECT_GT(cudnn_backward_workspace(problem), kCudnnWorkspaceBytes);
    }
  }
}

TEST_P(CudnnPlansOf, TooLargeAWorkspaceIsNoPlan) {
  AttentionProblem problem = kPlain;
  problem.rows = 4;
  problem.queries = 8192;
  problem.heads = problem.kv_heads = 16;
  EXPECT_ERROR(build(problem), ErrorKind::config, "backward pass: no plan needs at most 512 MiB");
}

TEST_P(CudnnPlansOf, WhatCudnnRefusesSaysWhy) {
  AttentionProblem problem = kPlain;
  problem.size = problem.value_size = 20;
  EXPECT_NE(why_not_in_cudnn(problem), "");
  EXPECT_ERROR(build(problem), ErrorKind::config, "multiple of 8");
}

INSTANTIATE_TEST_SUITE_P(Gpus, CudnnPlansOf, ::testing::Values(kA100, kH100),
                         [](const auto& tested) { return fmt::format("sm_{}", tested.param.chip); });

TEST(CudnnLibrary, OldOrOtherVersionsAreRefused) {
  EXPECT_EQ(cuda::cudnn_version_text(91900), "9.19.0");
  EXPECT_EQ(cuda::why_cudnn_refused(91900, 91900), "");
  EXPECT_EQ(cuda::why_cudnn_refused(92500, 91900), "");
  EXPECT_NE(cuda::why_cudnn_refused(91501, 91900).find("9.15.1 is refused"), std::string::npos);
  EXPECT_NE(cuda::why_cudnn_refused(100000, 91900).find("compiled for cuDNN 9"), std::string::npos);
}

}  // namespace
}  // namespace quire::test
