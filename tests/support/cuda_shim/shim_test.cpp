// Checks that the host emulation of a GPU finds the mistakes that it is meant to find.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "core/tensor.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/cuda_shim/device_memory.h"

namespace quire::cuda {
namespace {

const bool g_guarded = [] {
  shim::guard_device_memory();
  return true;
}();

__global__ void reverse_kernel(int* values, bool wait) {
  __shared__ int kept[64];
  kept[threadIdx.x] = values[threadIdx.x];
  if (wait) __syncthreads();
  values[threadIdx.x] = kept[63 - threadIdx.x];
}

__global__ void sum_kernel(double* total, const float* x, int count) {
  double* const partial = dynamic_shared<double>();
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) sum += x[i];
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

__global__ void some_wait_kernel() {
  if (threadIdx.x < 40) __syncthreads();
}

__global__ void two_lines_kernel() {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void half_a_warp_kernel(int* out) {
  if (threadIdx.x < 16) out[0] = __shfl_xor_sync(kAllLanes, 1, 1);
}

[[maybe_unused]] __global__ void beyond_kernel(float* out) {
  out[threadIdx.x] = 1;
}

[[maybe_unused]] __global__ void beyond_shared_kernel(float* out) {
  float* const shared = dynamic_shared<float>();
  shared[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = shared[63 - threadIdx.x];
}

TEST(CudaShim, BarriersAndShufflesExchangeValues) {
  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<size_t>(i)] = i;
  launch(reverse_kernel, dim3(1), 64, 0, values.data(), true);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], 63 - i);

  const std::vector<float> ones(1000, 1.0F);
  std::vector<double> totals(3);
  launch(sum_kernel, dim3(3), 96, 3 * sizeof(double), totals.data(), ones.data(), 1000);
  EXPECT_EQ(totals, std::vector<double>(3, 1000.0));
}

#if !defined(__SANITIZE_THREAD__)
TEST(CudaShim, MissingBarrierGivesAnotherResult) {
  std::vector<int> values(64);
  for (int i = 0; i < 64; ++i) values[static_cast<size_t>(i)] = 100 + i;
  launch(reverse_kernel, dim3(1), 64, 0, values.data(), false);
  EXPECT_NE(values[0], 163);
}
#endif

TEST(CudaShim, RefusesWhatAGpuRefuses) {
  EXPECT_THROW(launch(some_wait_kernel, dim3(1), 2048, 0), DeviceError);
  EXPECT_THROW(launch(some_wait_kernel, dim3(1, 70000), 32, 0), DeviceError);
  EXPECT_THROW(launch(some_wait_kernel, dim3(1), 32, size_t{300} << 10), DeviceError);
}

// 48 KB without asking, a kernel's own arrays among them.
TEST(CudaShim, SharedMemoryIsAskedFor) {
  std::vector<int> values(64);
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(64);
  config.dynamicSmemBytes = size_t{48} << 10;
  EXPECT_EQ(cudaLaunchKernelEx(&config, reverse_kernel, values.data(), true), cudaErrorInvalidValue);
  launch(reverse_kernel, dim3(1), 64, config.dynamicSmemBytes, values.data(), true);
  EXPECT_EQ(cudaLaunchKernelEx(&config, reverse_kernel, values.data(), true), cudaSuccess);
}

TEST(CudaShimDeathTest, FindsDivergentBarriers) {
  EXPECT_DEATH(launch(some_wait_kernel, dim3(1), 64, 0), "divergent barrier: a thread has returned before");
  EXPECT_DEATH(launch(two_lines_kernel, dim3(1), 64, 0), "divergent barrier: threads wait at different lines");
  int out = 0;
  EXPECT_DEATH(launch(half_a_warp_kernel, dim3(1), 32, 0, &out), "returned before a warp operation");
}

// Values of the previous block must not be visible.
__global__ void leftover_kernel(float* out) {
  __shared__ float kept[32];
  if (blockIdx.x == 0) kept[threadIdx.x] = 1;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
}

TEST(CudaShim, SharedArraysBeginAsNoNumber) {
  std::vector<float> out(64);
  launch(leftover_kernel, dim3(2), 32, 0, out.data());
  EXPECT_EQ(out[31], 1);
  EXPECT_TRUE(std::isnan(out[32]));
}

#if defined(__SANITIZE_ADDRESS__)
TEST(CudaShimDeathTest, TheHostDoesNotReachDeviceMemory) {
  ASSERT_TRUE(g_guarded);
  const Tensor tensor = Tensor::zeros({4}, DType::f32, {DeviceKind::cuda, 0});
  const volatile float* const values = tensor.data<float>();
  EXPECT_DEATH(static_cast<void>(values[1]), "use-after-poison");
  EXPECT_EQ(tensor.to_vector<float>()[1], 0);
}

TEST(CudaShimDeathTest, SanitizerFindsOverruns) {
  std::vector<float> out(63);
  EXPECT_DEATH(launch(beyond_kernel, dim3(1), 64, 0, out.data()), "heap-buffer-overflow");
  std::vector<float> enough(64);
  EXPECT_DEATH(launch(beyond_shared_kernel, dim3(1), 64, 63 * sizeof(float), enough.data()), "heap-buffer-overflow");
}
#endif

#if defined(__SANITIZE_THREAD__)
TEST(CudaShimDeathTest, SanitizerFindsMissingBarriers) {
  const auto run = [](bool wait) {
    std::vector<int> values(64);
    launch(reverse_kernel, dim3(1), 64, 0, values.data(), wait);
    std::exit(0);
  };
  constexpr int kRaceFound = 66;
  EXPECT_EXIT(run(false), ::testing::ExitedWithCode(kRaceFound), "data race");
  EXPECT_EXIT(run(true), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace quire::cuda
