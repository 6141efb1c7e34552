// Tests Transformer-VQ on tensor cores, on the host: which calls reach them, how many products they take, and that
// codewords that are not in use do not matter.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/runtime.h"
#include "kernels/vq.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

int64_t products_of(const std::function<void()>& call) {
  const int64_t before = shim::tensor_products();
  call();
  return shim::tensor_products() - before;
}

struct CodeCall {
  ops::CodeAttentionInputs in;
  Tensor out, lse, dout, delta, dq, du, dmeans;

  void forward() const { ops::code_attention(out, lse, in); }
  void backward() const { ops::code_attention_backward(dq, du, dmeans, dout, delta, lse, in); }
};

CodeCall code_call(int64_t queries, int64_t size, int64_t value_size, int64_t codes, int64_t block,
                   const std::function<void(const Tensor& codebook, const Tensor& counts)>& change) {
  RandomTensors random(9);
  const int64_t caches = (queries + block - 1) / block + 1;
  const auto half = [&](const Shape& shape) { return on_device(random.normal(shape, 0.3, 0, DType::bf16), kCuda); };
  const Tensor codebook = random.normal({1, codes, size}, 1, 0, DType::f32);
  const Tensor means = random.normal({1, caches - 1, 1, codes, value_size}, 1, 0, DType::bf16);
  const Tensor counts = Tensor::zeros({1, caches, 1, codes}, DType::f32);
  for (int64_t i = 0; i < counts.numel(); ++i) counts.data<float>()[i] = static_cast<float>(i % codes % 3);
  change(codebook, counts);
  CodeCall call;
  call.in.q = half({1, queries, 1, size});
  call.in.u = on_device(random.normal({1, size}, 0.3, 0, DType::f32), kCuda);
  call.in.codebook = on_device(codebook, kCuda);
  call.in.means = on_device(means, kCuda);
  call.in.counts = on_device(counts, kCuda);
  call.in.block = block;
  call.out = half({1, queries, 1, value_size});
  call.lse = on_device(random.normal({1, 1, queries}, 1, 0, DType::f32), kCuda);
  call.dout = half({1, queries, 1, value_size});
  call.delta = on_device(random.normal({1, 1, queries}, 1, 0, DType::f32), kCuda);
  call.dq = half({1, queries, 1, size});
  call.du = Tensor::zeros({1, size}, DType::f32, kCuda);
  call.dmeans = Tensor::empty_like(call.in.means);
  return call;
}
const auto kUnchanged = [](const Tensor&, const Tensor&) {};

TEST(CodesOnTensorCores, LogitsAreMadeOnce) {
  // 4 warps, 8 tiles of 8 codewords or queries, one step of 16 features.
  constexpr int64_t kLogits = 4 * 8;
  // 4 warps, 4 steps, 4 tiles of 16 lines, 4 tiles of 8 features.
  constexpr int64_t kValues = 4 * 4 * 4 * 4;
  const CodeCall call = code_call(64, 16, 128, 64, 64, kUnchanged);
  EXPECT_EQ(products_of([&] { call.forward(); }), kLogits + kValues);
  // Gradients of queries take 128 codewords at a time and all features once: 2 steps of 64 features, then logits, then
  // one tile of 16 features of dq, two warps of which have nothing to do.
  constexpr int64_t kGradients = 4 * 4 * 2 * 8;
  constexpr int64_t kQueries = 2 * 8 * 2 * 2;
  EXPECT_EQ(products_of([&] { call.backward(); }), kLogits + kValues + 2 * kGradients + kGradients / 4 + kQueries);
  // Two tiles of codewords.
  const CodeCall more = code_call(64, 16, 128, 65, 64, kUnchanged);
  EXPECT_EQ(products_of([&] { more.forward(); }), 2 * (kLogits + kValues));
}

TEST(CodesOnTensorCores, OtherSizesAndTypesDoNotReachThem) {
  for (const auto& [size, value_size] : {std::pair{12, 16}, {16, 12}, {136, 16}, {16, 136}}) {
    const CodeCall call = code_call(5, size, value_size, 6, 3, kUnchanged);
    EXPECT_EQ(products_of([&] { call.forward(); }), 0);
    EXPECT_EQ(products_of([&] { call.backward(); }), 0);
  }
}

TEST(CodesOnTensorCores, OperandsDoNotShareBanks) {
  const int64_t before = shim::bank_conflicts();
  for (const int64_t value_size : {64, 128}) {
    const CodeCall call = code_call(70, value_size == 64 ? 64 : 128, value_size, 70, 70, kUnchanged);
    call.forward();
    call.backward();
  }
  EXPECT_EQ(shim::bank_conflicts(), before);
}

TEST(CodesOnTensorCores, WhatIsNotInUseDoesNotMatter) {
  const auto filled = [](float value) {
    return [value](const Tensor& codebook, const Tensor& counts) {
      for (int64_t i = 0; i < codebook.numel(); ++i) {
        if (counts.data<float>()[i / codebook.dim(2)] == 0) codebook.data<float>()[i] = value;
      }
    };
  };
  for (const int64_t value_size : {72, 264}) {
    const CodeCall tame = code_call(70, 24, value_size, 67, 40, filled(0));
    const CodeCall wild = code_call(70, 24, value_size, 67, 40, filled(std::numeric_limits<float>::quiet_NaN()));
    for (const CodeCall& call : {tame, wild}) {
      call.forward();
      call.backward();
    }
    EXPECT_FALSE(std::isnan(values_of(tame.out)[0]));
    for (const auto& [got, expected] : {std::pair{wild.out, tame.out},
                                        {wild.lse, tame.lse},
                                        {wild.dq, tame.dq},
                                        {wild.du, tame.du},
                                        {wild.dmeans, tame.dmeans}}) {
      EXPECT_TRUE(same_bits(got, expected));
    }
  }
}

struct Nearest {
  Tensor codes, quantized, error;
};
Nearest nearest_of(const Tensor& x, const Tensor& codebook) {
  const Nearest found{Tensor::zeros({x.dim(0), x.dim(1)}, DType::i32, kCuda),
                      Tensor::empty(x.shape(), x.dtype(), kCuda),
                      Tensor::zeros({x.dim(0), x.dim(1)}, DType::f32, kCuda)};
  ops::nearest_code(found.codes, found.quantized, found.error, on_device(x, kCuda), on_device(codebook, kCuda));
  return found;
}

TEST(NearestCodesOnTensorCores, CodewordsThatAreOneInBf16AreToldApart) {
  constexpr int64_t kSize = 64;
  RandomTensors random(4);
  const Tensor x = random.normal({66, 1, kSize}, 1, 0, DType::bf16);
  const Tensor codebook = random.normal({1, 80, kSize}, 1, 0, DType::f32);
  // Each codeword once more, longer by a number of which bf16 has no bit, and a third time as it was.
  float* const c = codebook.data<float>();
  for (int64_t i = 0; i < 20 * kSize; ++i) {
    c[20 * kSize + i] = c[i] * (1 + 0x1p-14F);
    c[40 * kSize + i] = c[i];
    c[60 * kSize + i] = c[i] * (1 - 0x1p-18F);
  }
  Nearest found;
  EXPECT_GT(products_of([&] { found = nearest_of(x, codebook); }), 0);
  const std::vector<double> vectors = values_of(x);
  const std::vector<int32_t> codes = found.codes.to_vector<int32_t>();
  int told_apart = 0;
  for (int64_t v = 0; v < 66; ++v) {
    const auto distance = [&](int64_t code) {
      double sum = 0;
      for (int64_t d = 0; d < kSize; ++d) {
        const double difference = vectors[static_cast<size_t>(v * kSize + d)] - c[code * kSize + d];
        sum += difference * difference;
      }
      return sum;
    };
    const int32_t code = codes[static_cast<size_t>(v)];
    for (int64_t other = 0; other < 80; ++other) EXPECT_LE(distance(code), distance(other) * (1 + 4e-7)) << v;
    EXPECT_TRUE(code < 40 || code >= 60) << v;  // the lowest of equal ones
    told_apart += code >= 20 ? 1 : 0;
  }
  EXPECT_GT(told_apart, 0);
  EXPECT_EQ(products_of([&] { nearest_of(converted(x, DType::f32), codebook); }), 0);
}

}  // namespace
}  // namespace quire::test
