// Tests what kernels/cuda/products/gemm.cpp asks of cuBLASLt, against a substitute that follows the documentation.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include "autograd/functions/basic.h"
#include "core/error.h"
#include "kernels/gemm.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

class CudaProducts : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(missing_cuda_device(), ""); }

  Tensor normal(const Shape& shape, DType dtype) { return random_.normal(shape, 1, 0, dtype); }

  // Runs it twice with the same tensors, and once in f32 or f64 on the CPU, and expects the same.
  void expect_same(int64_t n, DType dtype, bool bias, std::optional<ops::Activation> activation, bool pre) {
    const DType wide = wide_type(dtype);
    const Tensor a = normal({5, 7}, dtype);
    const Tensor b = normal({7, n}, dtype);
    const Tensor shift = normal({n}, wide);
    const auto run = [&](DType type, Device device, int times) {
      const Tensor c = Tensor::zeros({5, n}, type, device);
      const Tensor before = Tensor::zeros({5, n}, type, device);
      const Tensor x = on_device(converted(a, type), device);
      const Tensor y = on_device(converted(b, type), device);
      ops::GemmOptions options;
      if (bias) options.bias = on_device(shift, device);
      options.activation = activation;
      if (pre) options.pre = before;
      for (int time = 0; time < times; ++time) ops::gemm(c, x, y, options);
      return std::vector<Tensor>{converted(on_device(c, Device{}), wide), converted(on_device(before, Device{}), wide)};
    };
    const std::vector<Tensor> found = run(dtype, kCuda, 2);
    const std::vector<Tensor> expected = run(wide, Device{}, 1);
    const double tolerance = dtype == DType::bf16 ? 2e-2 : 1e-5;
    EXPECT_LT(relative_error(found[0], expected[0]), tolerance);
    if (pre) {
      EXPECT_LT(relative_error(found[1], expected[1]), tolerance);
    }
  }

  // The same of a product that becomes the gradient of what an activation was applied to.
  void expect_same_gradient(int64_t n, DType dtype, ops::Activation activation) {
    const DType wide = wide_type(dtype);
    const Tensor a = normal({5, 7}, dtype);
    const Tensor b = normal({n, 7}, dtype);
    const Tensor at = normal({5, n}, dtype);
    const auto run = [&](DType type, Device device, int times) {
      const Tensor c = Tensor::zeros({5, n}, type, device);
      const Tensor x = on_device(converted(a, type), device);
      const Tensor y = on_device(converted(b, type), device);
      const Tensor before = on_device(converted(at, type), device);
      for (int time = 0; time < times; ++time) {
        ops::gemm(c, x, y, {.transpose_b = true, .gradient_of = activation, .at = before});
      }
      return converted(on_device(c, Device{}), wide);
    };
    const double tolerance = dtype == DType::bf16 ? 2e-2 : 1e-5;
    EXPECT_LT(relative_error(run(dtype, kCuda, 2), run(wide, Device{}, 1)), tolerance);
  }

  static Tensor converted(const Tensor& tensor, DType dtype) {
    if (tensor.dtype() == dtype) return tensor;
    const Tensor result = Tensor::empty(tensor.shape(), dtype);
    ops::convert(result, tensor);
    return result;
  }

  RandomTensors random_{5};
};

constexpr auto kGelu = ops::Activation::gelu;
constexpr auto kRelu = ops::Activation::relu;
constexpr auto kSilu = ops::Activation::silu;

// Runs something and says how many products with this epilogue that were.
int count(int epilogue, const std::function<void()>& run) {
  const int before = shim::epilogues_run(epilogue);
  run();
  return shim::epilogues_run(epilogue) - before;
}

TEST_F(CudaProducts, WhatTheLibraryCanBuildInIsBuiltIn) {
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_RELU_BIAS, [&] { expect_same(64, DType::f32, true, kRelu, false); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_RELU, [&] { expect_same(64, DType::bf16, false, kRelu, false); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(64, DType::f32, true, std::nullopt, false); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_GELU_AUX, [&] { expect_same(64, DType::bf16, false, kGelu, true); }), 2);
  // In f32 beside bf16, and of the type of the result where it is built in.
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, [&] { expect_same(64, DType::bf16, true, kGelu, true); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(64, DType::bf16, true, std::nullopt, false); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(64, DType::bf16, true, kSilu, true); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DGELU, [&] { expect_same_gradient(64, DType::bf16, kGelu); }), 2);
}

TEST_F(CudaProducts, WhatItDoesNotPromiseIsNotAsked) {
  // GELU in f32, values before it with a stride that is no multiple of 8, SiLU.
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(64, DType::f32, true, kGelu, true); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same(63, DType::bf16, false, kGelu, true); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same(64, DType::f64, true, kRelu, false); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(64, DType::f32, true, kSilu, true); }), 2);
  // The same of gradients, and that of ReLU, for which it would take signs.
  for (const DType dtype : {DType::f64, DType::f32}) {
    EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_gradient(64, dtype, kGelu); }), 2);
  }
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_gradient(63, DType::bf16, kGelu); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_gradient(64, DType::bf16, kRelu); }), 2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_gradient(64, DType::bf16, kSilu); }), 2);
}

TEST_F(CudaProducts, WhatItProposesAndRefusesIsDoneApart) {
  shim::refuse_epilogues(1);  // and the second time is not asked again
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same(40, DType::f32, true, kRelu, false); }), 2);
  shim::refuse_epilogues(2);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same(48, DType::f32, true, kRelu, false); }), 2);
  shim::refuse_epilogues(1);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_gradient(56, DType::bf16, kGelu); }), 2);
  shim::refuse_epilogues(0);
}

TEST_F(CudaProducts, FeedForwardLayersAskForTheGradientOfTheirActivation) {
  const auto leaf = [&](const Shape& shape, DType dtype) {
    return Variable::leaf(on_device(normal(shape, dtype), kCuda));
  };
  const Variable x = leaf({4, 24}, DType::bf16);
  const LinearWeights up{leaf({32, 24}, DType::bf16), leaf({32}, DType::f32)};
  const LinearWeights down{leaf({24, 32}, DType::bf16), leaf({24}, DType::f32)};
  EXPECT_EQ(
      count(CUBLASLT_EPILOGUE_DGELU,
            [&] {
              Tape tape;
              tape.backward(feed_forward(tape, x, up, kGelu, down), on_device(normal({4, 24}, DType::bf16), kCuda));
            }),
      1);
}

TEST_F(CudaProducts, ResidualsAreAddedInTheProduct) {
  const auto expect_same_sum = [&](DType dtype, bool bias) {
    const DType wide = wide_type(dtype);
    const std::vector<Tensor> in{normal({5, 7}, dtype), normal({7, 72}, dtype), normal({72}, wide),
                                 normal({6, 72}, dtype)};
    const auto run = [&](DType type, Device device, int times) {
      const auto given = [&](size_t i) { return on_device(i == 2 ? in[i] : converted(in[i], type), device); };
      const Tensor c = Tensor::zeros({5, 72}, type, device);
      const Tensor residual = given(3);
      ops::GemmOptions options;
      if (bias) options.bias = given(2);
      // Also from an address that is aligned less well than that of the result.
      for (int time = 0; time < times; ++time) {
        for (const int64_t first : {1, 0}) {
          options.residual = residual.slice(0, first, first + 5);
          ops::gemm(c, given(0), given(1), options);
        }
      }
      // The tensor to which it is added is not changed.
      return std::vector<Tensor>{converted(on_device(c, Device{}), wide),
                                 converted(on_device(residual, Device{}), wide)};
    };
    const std::vector<Tensor> found = run(dtype, kCuda, 2);
    const std::vector<Tensor> expected = run(wide, Device{}, 1);
    EXPECT_LT(relative_error(found[0], expected[0]), dtype == DType::bf16 ? 2e-2 : 1e-5);
    EXPECT_TRUE(same_bits(found[1], expected[1]));
  };
  for (const DType dtype : {DType::bf16, DType::f32, DType::f64}) {
    EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_sum(dtype, false); }), 4);
  }
  for (const DType dtype : {DType::bf16, DType::f32}) {
    EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { expect_same_sum(dtype, true); }), 4);
  }
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { expect_same_sum(DType::f64, true); }), 4);
}

TEST_F(CudaProducts, ABiasIsAddedToRowsThatLieApart) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor a = normal({3, 7}, dtype);
    const Tensor b = normal({7, 5}, dtype);
    const Tensor bias = normal({5}, dtype);
    std::vector<Tensor> results;
    for (const Device device : {Device{}, kCuda}) {
      const Tensor c = Tensor::zeros({3, 9}, dtype, device);
      ops::GemmOptions options;
      options.bias = on_device(bias, device);
      ops::gemm(c.slice(1, 2, 7), on_device(a, device), on_device(b, device), options);
      results.push_back(on_device(c, Device{}));
    }
    EXPECT_LT(relative_error(results[1], results[0]), 1e-6);
  }
}

TEST_F(CudaProducts, APlanIsForAddressesOfOneAlignment) {
  const Tensor a = on_device(normal({5, 7}, DType::f32), kCuda);
  const Tensor b = on_device(normal({7, 32}, DType::f32), kCuda);
  const Tensor room = on_device(normal({33}, DType::f32), kCuda);
  const Tensor c = Tensor::zeros({5, 32}, DType::f32, kCuda);
  for (const int64_t first : {0, 1}) {
    ops::GemmOptions options;
    options.bias = room.slice(0, first, first + 32);
    EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { ops::gemm(c, a, b, options); }), 1) << first;
  }
}

// dy^T x and the sums of dy's columns, both new or both added to something.
TEST_F(CudaProducts, SumsOfRowsAreMadeBesideTheProduct) {
  const auto expect_same_sums = [&](DType dtype, DType result, bool add) {
    const DType wide = wide_type(dtype);
    const Tensor dy = normal({6, 5}, dtype);
    const Tensor x = normal({6, 7}, dtype);
    const Tensor c = normal({5, 7}, result);
    const Tensor sums = normal({5}, wide);
    const auto run = [&](DType type, DType of_c, Device device) {
      const Tensor to = on_device(converted(c, of_c), device);
      const Tensor of_bias = on_device(converted(sums, wide), device);
      ops::gemm(to, on_device(converted(dy, type), device), on_device(converted(x, type), device),
                {.transpose_a = true, .accumulate = add, .sums = of_bias, .add_sums = add});
      return std::vector<Tensor>{converted(on_device(to, Device{}), wide), on_device(of_bias, Device{})};
    };
    const std::vector<Tensor> expected = run(wide, wide, Device{});
    const std::vector<Tensor> found = run(dtype, result, kCuda);
    EXPECT_LT(relative_error(found[0], expected[0]), result == DType::bf16 ? 2e-2 : 1e-5);
    EXPECT_LT(relative_error(found[1], expected[1]), 1e-5);
  };
  for (const bool add : {false, true}) {
    expect_same_sums(DType::f32, DType::f32, add);
    expect_same_sums(DType::f64, DType::f64, add);
    expect_same_sums(DType::bf16, DType::bf16, add);
    expect_same_sums(DType::bf16, DType::f32, add);
  }
}

}  // namespace
}  // namespace quire::test
