// Memory, copies and streams of the GPU (kernels/cuda/device/memory.cpp) on the host, whose streams are threads: what
// comes in the wrong order gives other numbers when one of them lags behind.
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "kernels/elementwise.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_shim/cuda_streams.h"
#include "tests/support/cuda_shim/device_limit.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr int kCompute = 0, kCopy = 1, kFetch = 2;
constexpr int64_t kCount = 3000;

// Runs the test with each of the streams behind the others.
class CudaMemory : public ::testing::TestWithParam<int> {
 protected:
  CudaMemory() { shim::slow_down_stream(GetParam()); }
  ~CudaMemory() override { shim::slow_down_stream(-1); }

  static std::vector<float> numbers(float first) {
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  DeviceBackend& device = device_backend(DeviceKind::cuda);
};

TEST_P(CudaMemory, AnUploadWaitsForWhoeverReadItsPlaceBefore) {
  std::vector<Tensor> sums;
  for (int i = 0; i < 20; ++i) {
    // Freed at the end of each turn, while kernels that read it may be waiting.
    const Tensor uploaded = Tensor::from(numbers(static_cast<float>(i)), {kCount}, kCuda);
    sums.push_back(Tensor::empty({kCount}, DType::f32, kCuda));
    ops::add(sums.back(), uploaded, uploaded, 1, 1);
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const std::vector<float> got = sums[i].to_vector<float>();
    EXPECT_EQ(got[1], 2 * (static_cast<float>(i) + 1)) << i;
    EXPECT_EQ(got.back(), 2 * (static_cast<float>(i) + kCount - 1)) << i;
  }
}

TEST_P(CudaMemory, TheFirstUploadToAPlaceWaitsForWhoeverHadItBefore) {
  const int64_t count = int64_t{1 << 13} << (2 * GetParam() + 2);  // no upload before had as many bytes
  const Tensor sum = Tensor::empty({count}, DType::f32, kCuda);
  {
    const Tensor freed = Tensor::zeros({count}, DType::f32, kCuda);
    for (int i = 0; i < 5; ++i) ops::add(sum, freed, freed, 1, 1);
  }
  const Tensor uploaded = Tensor::from(std::vector<float>(static_cast<size_t>(count), 1), {count}, kCuda);
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(static_cast<size_t>(count), 0));
  EXPECT_EQ(uploaded.to_vector<float>().back(), 1);
}

TEST_P(CudaMemory, CopiesFromTheHostAreMadeInOrder) {
  const Tensor to = Tensor::empty({kCount}, DType::f32, kCuda);
  std::vector<Tensor> seen;
  for (int i = 0; i < 150; ++i) {  // more than there are buffers
    const std::vector<float> values = numbers(static_cast<float>(i));
    to.upload(values.data(), kCount);
    seen.push_back(Tensor::empty({kCount}, DType::f32, kCuda));
    ops::copy(seen.back(), to);
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].to_vector<float>()[2], static_cast<float>(i) + 2) << i;
}

TEST_P(CudaMemory, WhatIsFetchedIsThereWhenItHasBeenWaitedFor) {
  const Tensor to = Tensor::empty({kCount}, DType::f32, kCuda);
  std::vector<Tensor> sources, seen;
  for (int i = 0; i < 20; ++i) {
    sources.push_back(Tensor::from(numbers(static_cast<float>(i)), {kCount}));
    // Kernels that were queued before still read the place that is fetched to.
    device.fetch({{to.raw(), sources.back().raw(), kCount * sizeof(float)}});
    device.await_fetched();
    seen.push_back(Tensor::empty({kCount}, DType::f32, kCuda));
    ops::copy(seen.back(), to);
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].to_vector<float>()[3], static_cast<float>(i) + 3) << i;
}

TEST_P(CudaMemory, WhatIsFreedMayBeUsedAgainAtOnce) {
  Tensor sum = Tensor::zeros({kCount}, DType::f32, kCuda);
  const Tensor one = Tensor::from(std::vector<float>(kCount, 1), {kCount}, kCuda);
  for (int i = 0; i < 50; ++i) {
    const Tensor next = Tensor::empty({kCount}, DType::f32, kCuda);
    ops::add(next, sum, one, 1, 1);
    sum = next;
  }
  EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(kCount, 50));
}

TEST_P(CudaMemory, ComesBackFromUploadsWhenThereIsNoOther) {
  constexpr int64_t kLarge = 1 << 22;  // more than all other uploads together
  { const Tensor uploaded = Tensor::from(std::vector<float>(kLarge, 1), {kLarge}, kCuda); }
  device.allocator().trim();
  shim::leave_device_memory(1 << 16);
  // As many bytes as the upload has left.
  const Tensor large = Tensor::zeros({kLarge}, DType::f32, kCuda);
  EXPECT_EQ(large.to_vector<float>(), std::vector<float>(kLarge, 0));
  EXPECT_ERROR(Tensor::zeros({kLarge}, DType::f32, kCuda), ErrorKind::memory,
               "out of memory: 16777216 bytes requested");
  shim::leave_device_memory(size_t{1} << 40);
  EXPECT_EQ(Tensor::zeros({kLarge}, DType::f32, kCuda).to_vector<float>().back(), 0);
}

std::string name_of_stream(const ::testing::TestParamInfo<int>& given) {
  constexpr const char* kNames[] = {"none", "compute", "copy", "fetch"};
  return kNames[given.param + 1];
}

INSTANTIATE_TEST_SUITE_P(Behind, CudaMemory, ::testing::Values(-1, kCompute, kCopy, kFetch), name_of_stream);

}  // namespace
}  // namespace quire::test
