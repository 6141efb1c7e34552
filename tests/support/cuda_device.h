// The device that tests of CUDA code run on. Two sources define this: one asks the loaded backends for a GPU, the other
// uses the host in its place.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/device.h"

namespace quire::test {

inline constexpr Device kCuda{DeviceKind::cuda, 0};

// Returns why no tensors can be made on DeviceKind::cuda; empty when they can.
std::string missing_cuda_device();

// Tests that are skipped when there is no such device.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = missing_cuda_device();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
};
template <typename T>
class CudaTestWithParam : public CudaTest, public ::testing::WithParamInterface<T> {};

}  // namespace quire::test
