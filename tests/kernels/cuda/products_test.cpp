// What kernels/cuda/gemm.cpp asks of cuBLASLt, against a library in its place that keeps to the documentation.
#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>

#include "autograd/functions/basic.h"
#include "core/error.h"
#include "kernels/cuda/gemm.h"
#include "kernels/gemm.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

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
      // What it is added to is not changed.
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

// A choice that was made for five rows, and in which nothing is built in, is what six rows in the same places get.
TEST_F(CudaProducts, ChoicesAreTakenOver) {
  const Tensor a = on_device(normal({6, 7}, DType::f32), kCuda);
  const Tensor b = on_device(normal({7, 24}, DType::f32), kCuda);
  const Tensor c = Tensor::zeros({6, 24}, DType::f32, kCuda);
  ops::GemmOptions options;
  options.activation = kRelu;
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_RELU, [&] { ops::gemm(c.slice(0, 0, 5), a.slice(0, 0, 5), b, options); }), 1);
  std::string choices = cuda::product_choices();
  const size_t line = choices.find("\n5 24 7 ") + 1;
  ASSERT_NE(line, 0U) << choices;
  choices[line] = '6';
  const size_t fused = choices.find(':', line) + 1;
  ASSERT_EQ(choices[fused], '2') << choices;
  choices[fused] = '0';
  EXPECT_FALSE(cuda::use_product_choices("cublasLt 1 on another GPU\n"));
  EXPECT_TRUE(cuda::use_product_choices(""));
  EXPECT_TRUE(cuda::use_product_choices(choices));
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { ops::gemm(c, a, b, options); }), 1);
}

// What the library proposes while this lives, by the seconds that a run takes; below 0 it is refused.
class Proposals {
 public:
  explicit Proposals(const std::vector<double>& seconds) { shim::propose_products(seconds); }
  ~Proposals() {
    shim::propose_products({0});
    time({});  // forgets what was chosen
  }
  Proposals(const Proposals&) = delete;
  Proposals& operator=(const Proposals&) = delete;

  // Lines for the log.
  static std::vector<std::string> time(const std::function<void()>& work) {
    return cuda::time_products(
        work ? work : [] {}, shim::product_clock);
  }
};

// The number of the proposal that one product is run by.
int proposal_of(const std::function<void()>& product) {
  std::array<int, 16> before{};
  for (size_t number = 0; number < before.size(); ++number) before[number] = shim::proposals_run(number);
  product();
  int found = -1;
  for (size_t number = 0; number < before.size(); ++number) {
    const int runs = shim::proposals_run(number) - before[number];
    EXPECT_LE(runs, 1);
    if (runs == 0) continue;
    EXPECT_EQ(found, -1) << "several were run";
    found = static_cast<int>(number);
  }
  return found;
}

class TimedProducts : public CudaProducts {
 protected:
  // A product of its own: it occurs in no other test.
  std::function<void()> product(int64_t n, const ops::GemmOptions& options = {}) {
    const Tensor a = on_device(normal({5, 7}, DType::f32), kCuda);
    const Tensor b = on_device(normal({7, n}, DType::f32), kCuda);
    const Tensor c = Tensor::zeros({5, n}, DType::f32, kCuda);
    return [=] { ops::gemm(c, a, b, options); };
  }
};

TEST_F(TimedProducts, AreTheFirstProposedUnlessTheyAreTimed) {
  const Proposals slow_first({3, 1, 2});
  const auto call = product(80);
  EXPECT_EQ(proposal_of(call), 0);
  EXPECT_EQ(proposal_of(call), 0);
}

TEST_F(TimedProducts, AreTheFastestProposedAndStaySo) {
  const Proposals slow_first({3, 1, 2});
  const auto call = product(88);
  EXPECT_EQ(proposal_of(call), 0);
  const std::vector<std::string> lines = Proposals::time([&] {
    call();
    call();
  });
  EXPECT_EQ(proposal_of(call), 1);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find("products: 1 timed in "), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("1 go another way than the first that cuBLASLt proposes, 2000.00 ms a step for 6000.00"),
            std::string::npos)
      << lines[0];
  EXPECT_EQ(lines[1], "products: 2 calls of 5 x 88 over 7 in f32: number 2 of 3, 1000.0000 ms for 3000.0000");
  // What comes later is not timed.
  EXPECT_EQ(proposal_of(product(96)), 0);

  // In another process, whose library would propose otherwise.
  const std::string choices = cuda::product_choices();
  Proposals::time({});
  EXPECT_EQ(cuda::product_choices(), "");
  shim::propose_products({1, 2, 3});
  EXPECT_TRUE(cuda::use_product_choices(choices));
  // What has not been used yet is kept, too.
  EXPECT_EQ(cuda::product_choices(), choices);
  EXPECT_EQ(proposal_of(call), 1);
  // Also of a process that has chosen before.
  Proposals::time({});
  EXPECT_EQ(proposal_of(call), 0);
  EXPECT_TRUE(cuda::use_product_choices(choices));
  EXPECT_EQ(proposal_of(call), 1);
}

TEST_F(TimedProducts, WhatIsRefusedIsNotTaken) {
  {
    const Proposals some({-1, 3, -1, 2, -1});
    const auto call = product(104);
    const std::vector<std::string> lines = Proposals::time(call);
    EXPECT_EQ(proposal_of(call), 3);
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_NE(lines[1].find("number 4 of 5, 2000.0000 ms for 3000.0000"), std::string::npos) << lines[1];
  }
  const Proposals all({-1, -1});
  EXPECT_THROW(Proposals::time(product(112)), Error);
}

// With an epilogue both are refused, without it they are run.
TEST_F(TimedProducts, WhatIsRefusedWithAllBuiltInIsDoneApart) {
  const Proposals two({2, 1});
  ops::GemmOptions options;
  options.bias = on_device(normal({120}, DType::f32), kCuda);
  options.activation = kRelu;
  const auto call = product(120, options);
  shim::refuse_epilogues(2);
  Proposals::time(call);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BIAS, [&] { EXPECT_EQ(proposal_of(call), 1); }), 1);
}

TEST_F(TimedProducts, AreOneOfTheFirstEight) {
  const Proposals many({9, 8, 7, 6, 5, 4, 3, 2, 1});
  const auto call = product(128);
  Proposals::time(call);
  EXPECT_EQ(proposal_of(call), 7);
}

TEST_F(TimedProducts, AnErrorEndsTheTiming) {
  const Proposals two({2, 1});
  EXPECT_THROW(Proposals::time([] { throw std::runtime_error("work"); }), std::runtime_error);
  EXPECT_EQ(proposal_of(product(136)), 0);
}

// Timing runs a product many times; what it adds to is added to once, and what lies beside it is not touched.
TEST_F(TimedProducts, AddOnceToWhatTheyAddTo) {
  const Proposals two({2, 1});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    const auto expect_same_when_timed = [&](const Tensor& before, const std::function<void(const Tensor&)>& call) {
      const Tensor timed = on_device(before, kCuda);
      const Tensor again = on_device(before, kCuda);
      Proposals::time([&] { call(timed); });
      call(again);  // by the same proposal
      EXPECT_TRUE(same_bits(on_device(timed, Device{}), on_device(again, Device{})));
      EXPECT_FALSE(same_bits(on_device(timed, Device{}), before));
    };
    const Tensor a = on_device(normal({4, 11, 5}, dtype), kCuda);
    const Tensor b = on_device(normal({4, 11, 3}, dtype), kCuda);
    // Columns of a wider matrix.
    expect_same_when_timed(normal({5, 9}, dtype), [&](const Tensor& c) {
      ops::gemm(c.slice(1, 2, 5), a.select(0, 0), b.select(0, 0), {.transpose_a = true, .accumulate = true});
    });
    // Several at a time, whose rows lie between each other.
    expect_same_when_timed(normal({5, 4, 3}, dtype), [&](const Tensor& c) {
      ops::gemm(c.transpose(0, 1), a, b, {.transpose_a = true, .accumulate = true});
    });
    const Tensor residual = on_device(normal({5, 3}, dtype), kCuda);
    const Tensor kept = residual.to(Device{});
    expect_same_when_timed(normal({5, 3}, dtype), [&](const Tensor& c) {
      ops::gemm(c, a.select(0, 0), b.select(0, 0), {.transpose_a = true, .residual = residual});
    });
    EXPECT_TRUE(same_bits(residual.to(Device{}), kept));
  }
}

// dy^T x and the sums of dy's columns, both new or both added to something.
class SumsOfRows : public TimedProducts {
 protected:
  // Runs it, timed and not, and expects what the CPU has in f32 or f64.
  void expect_same(DType dtype, DType result, int64_t tokens, bool add) {
    const DType wide = wide_type(dtype);
    const Tensor dy = normal({tokens, 5}, dtype);
    const Tensor x = normal({tokens, 7}, dtype);
    const Tensor c = normal({5, 7}, result);
    const Tensor sums = normal({5}, wide);
    const auto run = [&](DType type, DType of_c, Device device, bool timed) {
      const Tensor to = on_device(converted(c, of_c), device);
      const Tensor of_bias = on_device(converted(sums, wide), device);
      const Tensor left = on_device(converted(dy, type), device);
      const Tensor right = on_device(converted(x, type), device);
      const auto call = [&] {
        ops::gemm(to, left, right, {.transpose_a = true, .accumulate = add, .sums = of_bias, .add_sums = add});
      };
      if (timed) {
        Proposals::time(call);
      } else {
        call();
      }
      return std::vector<Tensor>{converted(on_device(to, Device{}), wide), on_device(of_bias, Device{})};
    };
    const std::vector<Tensor> expected = run(wide, wide, Device{}, false);
    for (const bool timed : {false, true}) {
      const std::vector<Tensor> found = run(dtype, result, kCuda, timed);
      EXPECT_LT(relative_error(found[0], expected[0]), result == DType::bf16 ? 2e-2 : 1e-5);
      EXPECT_LT(relative_error(found[1], expected[1]), 1e-5);
    }
  }
  int built_in(DType dtype, DType result, int64_t tokens, bool add) {
    return count(CUBLASLT_EPILOGUE_BGRADB, [&] { expect_same(dtype, result, tokens, add); });
  }
};

TEST_F(SumsOfRows, AreBuiltInWhereThatIsFaster) {
  const Proposals one({1});
  for (const bool add : {false, true}) {
    EXPECT_GT(built_in(DType::f32, DType::f32, 6, add), 0);
    EXPECT_GT(built_in(DType::bf16, DType::f32, 6, add), 0);
  }
  // Of another type than the result, in f64, of one token.
  EXPECT_EQ(built_in(DType::bf16, DType::bf16, 6, true), 0);
  EXPECT_EQ(built_in(DType::f64, DType::f64, 6, true), 0);
  EXPECT_EQ(built_in(DType::f32, DType::f32, 1, true), 0);
}

TEST_F(SumsOfRows, AreBuiltInOnlyWhereThatIsFaster) {
  const Proposals two({2, 1});
  const Tensor dy = on_device(normal({6, 5}, DType::f32), kCuda);
  const Tensor x = on_device(normal({6, 9}, DType::f32), kCuda);
  const Tensor c = Tensor::zeros({5, 9}, DType::f32, kCuda);
  const Tensor sums = Tensor::zeros({5}, DType::f32, kCuda);
  const auto call = [&] { ops::gemm(c, dy, x, {.transpose_a = true, .sums = sums}); };
  // Not where nothing is timed.
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, call), 1);
  shim::slow_epilogue(CUBLASLT_EPILOGUE_BGRADB, 1);
  Proposals::time(call);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_DEFAULT, [&] { EXPECT_EQ(proposal_of(call), 1); }), 1);
  shim::slow_epilogue(CUBLASLT_EPILOGUE_BGRADB, -0.5);
  const std::vector<std::string> lines = Proposals::time(call);
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BGRADB, [&] { EXPECT_EQ(proposal_of(call), 1); }), 1);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[1].find("sums of rows: number 2 of 2 with other parts built in, 500.0000 ms for 2000.0000"),
            std::string::npos)
      << lines[1];
  shim::slow_epilogue(CUBLASLT_EPILOGUE_BGRADB, 0);
  // A checkpoint keeps that, too.
  const std::string choices = cuda::product_choices();
  Proposals::time({});
  EXPECT_TRUE(cuda::use_product_choices(choices));
  EXPECT_EQ(count(CUBLASLT_EPILOGUE_BGRADB, call), 1);
}

}  // namespace
}  // namespace quire::test
