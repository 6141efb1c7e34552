// Tests the message that a user reads when a device's library refuses a call.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "kernels/elementwise.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

// Stands in for a GPU whose kernels fail, at once or when they are waited for.
class FailingDevice : public DeviceBackend {
 public:
  std::string name() const override { return "failing"; }
  Allocator& allocator() override { return device_backend(DeviceKind::cpu).allocator(); }
  Memory memory() const override { return {}; }
  void copy_to_host(void* host, const void* device, size_t bytes) override { std::memcpy(host, device, bytes); }
  void copy_from_host(void* device, const void* host, size_t bytes) override { std::memcpy(device, host, bytes); }
  void copy_within(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(void* device, size_t bytes) override { std::memset(device, 0, bytes); }
  void synchronize() override {
    if (fails_later) throw DeviceError("CUDA: an illegal memory access was encountered");
  }
  static inline bool fails_later = false;
};

constexpr Device kDevice{DeviceKind::cuda, 0};

class DeviceErrors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    register_device_backend(DeviceKind::cuda, std::make_unique<FailingDevice>());
    ops::multiply.bind(DeviceKind::cuda, [](const Tensor&, const Tensor&, const Tensor&) {
      throw DeviceError("CUDA: invalid configuration argument");
    });
    ops::scale.bind(DeviceKind::cuda, [](const Tensor&, const Tensor&, double) {});
  }
  void TearDown() override {
    OpBase::set_checking(false);
    FailingDevice::fails_later = false;
  }
  Tensor x = Tensor::zeros({4, 3}, DType::f32, kDevice);
};

TEST_F(DeviceErrors, NameTheOperationAndShapes) {
  EXPECT_ERROR(ops::multiply(x, x, x), ErrorKind::internal,
               "multiply of f32 [4, 3], f32 [4, 3], f32 [4, 3]: CUDA: invalid configuration argument");
}

TEST_F(DeviceErrors, CheckingFindsTheOneThatFailsLater) {
  FailingDevice::fails_later = true;
  ops::scale(x, x, 2);  // nobody has waited
  OpBase::set_checking(true);
  EXPECT_ERROR(ops::scale(x, x, 2), ErrorKind::internal,
               "scale of f32 [4, 3], f32 [4, 3]: CUDA: an illegal memory access");
}

TEST_F(DeviceErrors, MissingKernelIsNamed) {
  EXPECT_ERROR(ops::add(x, x, x, 1, 1), ErrorKind::internal, "add: no kernel for device cuda");
}

}  // namespace
}  // namespace quire::test
