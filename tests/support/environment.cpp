// Loads the kernels before the first test; with QUIRE_TEST_DEVICE=cuda and no GPU all tests are skipped, with a word. A
// program whose GPU has failed ends with the test in which it did, since all others would fail with it.
// Each test program lists this file among its sources.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "core/device.h"
#include "kernels/backend.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class FailedGpu : public ::testing::EmptyTestEventListener {
 public:
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    try {
      device_backend(DeviceKind::cuda).synchronize();
    } catch (const DeviceError& error) {
      std::printf("[  FAILED  ] %s.%s, and the GPU with it: %s\n", test.test_suite_name(), test.name(), error.what());
      std::fflush(stdout);
      std::_Exit(3);
    }
  }
};

class Backends : public ::testing::Environment {
 public:
  void SetUp() override {
    load_backends();
    if (test_device() == kCpu) return;
    if (!load_cuda().gpu.empty()) {
      ::testing::UnitTest::GetInstance()->listeners().Append(new FailedGpu);
      return;
    }
    GTEST_SKIP() << "no GPU can be used: " << load_cuda().reason;
  }
};

const ::testing::Environment* const g_backends = ::testing::AddGlobalTestEnvironment(new Backends);

}  // namespace
}  // namespace quire::test
