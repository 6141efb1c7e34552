// Attention to values of more than 128 features on tensor cores, on the host: how many products it takes.
#include <gtest/gtest.h>

#include "kernels/attention.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

// 64 queries that see 64 keys.
struct WideCall {
  ops::AttentionInputs in;
  Tensor out, lse;

  explicit WideCall(int64_t size, int64_t value_size, int64_t slots = 0) {
    RandomTensors random(3);
    const auto half = [&](const Shape& shape) { return on_device(random.normal(shape, 0.3, 0, DType::bf16), kCuda); };
    in.q = half({1, 64, 1, size});
    in.k = half({1, 64, 1, size});
    in.v = half({1, 64, 1, value_size});
    if (slots > 0) {
      in.cache_k = half({1, slots, 1, size});
      in.cache_v = half({1, slots, 1, value_size});
      in.cache_head = Tensor::zeros({1}, DType::i32, kCuda);
    }
    in.first_visible = Tensor::zeros({1, 64}, DType::i32, kCuda);
    out = Tensor::empty({1, 64, 1, value_size}, DType::bf16, kCuda);
    lse = Tensor::empty({1, 1, 64}, DType::f32, kCuda);
  }
  int64_t forward() const {
    const int64_t before = shim::tensor_products();
    ops::attention(out, lse, in);
    return shim::tensor_products() - before;
  }
  int64_t backward() const {
    ops::AttentionGradients gradients;
    gradients.dq = Tensor::empty_like(in.q);
    gradients.dk = Tensor::empty_like(in.k);
    gradients.dv = Tensor::empty_like(in.v);
    const int64_t before = shim::tensor_products();
    ops::attention_backward(gradients, out, out, lse, in);
    return shim::tensor_products() - before;
  }
};

// 4 warps, 8 tiles of 8 keys, one step of 16 features.
constexpr int64_t kLogits = 4 * 8;
// 4 warps, 4 steps, 4 tiles of 16 lines, 8 tiles of 8 features.
constexpr int64_t kSlice = 4 * 4 * 4 * 8;

TEST(WideValues, LogitsAreMadeOnceForASliceOf256Features) {
  EXPECT_EQ(WideCall(16, 512).forward(), 2 * (kLogits + kSlice));
}

TEST(WideValues, TheBackwardPassGoesOverTheirFeaturesTwice) {
  // dout . v: 8 steps of 64 features with 128 keys, of which there are 64.
  constexpr int64_t kProducts = 8 * 4 * 4 * 2 * 8;
  // Logits twice; dq: 4 steps of 16 keys, a tile of 16 features; dk the same.
  constexpr int64_t kOthers = 2 * kLogits + 2 * 4 * 4 * 2;
  EXPECT_EQ(WideCall(16, 512).backward(), kProducts + kOthers + 2 * kSlice);
}

TEST(WideValues, TooManyKeysForWhatIsKeptOfThemGoToOtherKernels) {
  const WideCall call(16, 136, 512);
  EXPECT_GT(call.forward(), 0);
  EXPECT_EQ(call.backward(), 0);
}

// Terms of Transformer-XL for 128 features take more than the 99 KB that every GPU gives a block.
TEST(WideValues, WithLittleSharedMemoryOtherKernelsAreTaken) {
  for (const int64_t value_size : {128, 320}) {
    WideCall call(128, value_size);
    call.in.r = on_device(RandomTensors(4).normal({64, 1, 128}, 0.3, 0, DType::bf16), kCuda);
    call.in.u = call.in.v_bias = Tensor::zeros({1, 128}, DType::f32, kCuda);
    EXPECT_GT(call.forward(), 0);
    EXPECT_GT(call.backward(), 0);
    const std::vector<double> wanted = values_of(call.out);
    shim::set_shared_memory(size_t{99} << 10);
    EXPECT_EQ(call.forward(), 0);
    EXPECT_EQ(call.backward(), 0);
    EXPECT_GT(WideCall(128, value_size).forward(), 0);
    shim::set_shared_memory(size_t{227} << 10);
    const std::vector<double> found = values_of(call.out);
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 0.02) << i;
  }
}

TEST(WideValues, OperandsDoNotShareBanks) {
  const int64_t before = shim::bank_conflicts();
  const WideCall call(128, 320);
  call.forward();
  call.backward();
  EXPECT_EQ(shim::bank_conflicts(), before);
}

}  // namespace
}  // namespace quire::test
