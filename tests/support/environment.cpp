// Loads the kernels before the first test; with QUIRE_TEST_DEVICE=cuda and no GPU all tests are skipped, with a word.
// Each test program lists this file among its sources.
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class Backends : public ::testing::Environment {
 public:
  void SetUp() override {
    load_backends();
    if (test_device() == kCpu || !load_cuda().gpu.empty()) return;
    GTEST_SKIP() << "no GPU can be used: " << load_cuda().reason;
  }
};

const ::testing::Environment* const g_backends = ::testing::AddGlobalTestEnvironment(new Backends);

}  // namespace
}  // namespace quire::test
