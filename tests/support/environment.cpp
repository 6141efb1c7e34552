// Loads the CPU kernels before the first test. Each test program lists this file among its sources.
#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace quire::test {
namespace {

class Backends : public ::testing::Environment {
 public:
  void SetUp() override { load_backends(); }
};

const ::testing::Environment* const g_backends = ::testing::AddGlobalTestEnvironment(new Backends);

}  // namespace
}  // namespace quire::test
