// Tests of CUDA kernels beyond the op cases: addresses, very wide rows, input that only the device sees.
#include <gtest/gtest.h>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/state.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

class CudaKernels : public CudaTest {
 protected:
  Tensor normal(const Shape& shape, DType dtype) { return on_device(random_.normal(shape, 1, 0, dtype), kCuda); }
  Tensor integers(const std::vector<int32_t>& values) {
    return Tensor::from(values, {static_cast<int64_t>(values.size())}, kCuda);
  }

  RandomTensors random_{12};
};

// The same values, one element past an address that vectors can be loaded from.
Tensor moved(const Tensor& tensor) {
  const Tensor room = Tensor::zeros({tensor.numel() + 1}, tensor.dtype(), tensor.device());
  const Tensor view = room.slice(0, 1, tensor.numel() + 1).reshape(tensor.shape());
  view.copy_from(tensor);
  return view;
}

TEST_F(CudaKernels, AddressesDoNotChangeABit) {
  using Run = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const DType wide = wide_type(dtype);
    const Tensor x = normal({6, 48}, dtype);
    const Tensor dy = normal({6, 48}, dtype);
    const Tensor gain = normal({48}, wide);
    const Tensor logits = normal({6, 48}, DType::f32);
    const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1, 0, 1, 1, 1}, {6}, kCuda);
    const Tensor ids = integers({3, 0, 3, 1, 3, 0});
    const auto scalar = [](double value) { return Tensor::from(std::vector<double>{value}, {1}, kCuda); };
    const Tensor control = Tensor::from(std::vector<double>{0.5, 1}, {2}, kCuda);
    const std::pair<std::vector<Tensor>, Run> runs[] = {
        {{x, dy, Tensor::zeros({6, 48}, dtype, kCuda)},
         [](const std::vector<Tensor>& in) {
           ops::swiglu(in[2], in[0], in[1]);
           return std::vector<Tensor>{in[2]};
         }},
        {{x, gain},
         [](const std::vector<Tensor>& in) {
           ops::add_bias(in[0], in[0], in[1]);
           return std::vector<Tensor>{in[0]};
         }},
        {{x.reshape({2, 3, 48}), dy.reshape({2, 3, 48})},
         [](const std::vector<Tensor>& in) {
           ops::dropout(in[0], in[0], in[1], {RandomKey::of(1, 2), 3, 4, 0.3});
           return std::vector<Tensor>{in[0]};
         }},
        {{x, gain},
         [](const std::vector<Tensor>& in) {
           ops::sum_rows(in[1], in[0], true);
           return std::vector<Tensor>{in[1]};
         }},
        {{x, gain, dy, normal({6}, wide), normal({6}, wide), gain, gain, x},
         [](const std::vector<Tensor>& in) {
           ops::layer_norm(in[7], in[3], in[4], in[0], in[1], in[1], 1e-3);
           ops::layer_norm_backward(in[7], in[5], in[6], in[2], in[0], in[1], in[3], in[4], true);
           return std::vector<Tensor>{in[3], in[4], in[5], in[6], in[7]};
         }},
        {{logits, Tensor::zeros({6, 48}, dtype, kCuda)},
         [&](const std::vector<Tensor>& in) {
           const Tensor nll = Tensor::zeros({6}, DType::f32, kCuda);
           ops::cross_entropy(nll, in[1], in[0], ids, mask, scalar(0.3), {});
           return std::vector<Tensor>{nll, in[1]};
         }},
        {{normal({4, 48}, dtype), x, normal({4, 48}, wide)},
         [&](const std::vector<Tensor>& in) {
           ops::embedding(in[1], in[0], ids, 1.5);
           ops::embedding_backward(in[2], in[1], ids, 1.5);
           return std::vector<Tensor>{in[1], in[2]};
         }},
        {{normal({77}, wide), normal({77}, wide), Tensor::zeros({77}, wide, kCuda), normal({77}, wide)},
         [&](const std::vector<Tensor>& in) {
           ops::adamw(in[0], in[1], in[2], in[3], control, {.learning_rate = 0.1});
           return std::vector<Tensor>{in[0], in[1], in[2]};
         }},
        {{normal({2, 3, 8}, dtype), normal({2, 3, 8}, dtype), normal({2, 3, 8}, dtype)},
         [&](const std::vector<Tensor>& in) {
           ops::ring_append(in[0], in[1], integers({2, 0}), integers({0, 1}), integers({3, 2}), 1);
           ops::ring_gather(in[2], in[0], integers({2, 2}), integers({3, 1}));
           return std::vector<Tensor>{in[0], in[2]};
         }},
    };
    int number = 0;
    for (const auto& [inputs, run] : runs) {
      std::vector<Tensor> plain;
      std::vector<Tensor> shifted;
      for (const Tensor& input : inputs) {
        plain.push_back(clone(input));
        shifted.push_back(moved(input));
      }
      const std::vector<Tensor> expected = run(plain);
      const std::vector<Tensor> got = run(shifted);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same_bits(got[i], expected[i])) << name_of(dtype) << ", run " << number << ", output " << i;
      }
      ++number;
    }
  }
}

// Long rows are copied to shared memory where their address allows it and read from global memory otherwise; one of
// them does not fit. Rows lie apart and end within a pack.
TEST_F(CudaKernels, ThePlaceOfLogitsDoesNotChangeABit) {
  for (const int64_t width : {8197, 60003}) {
    const int64_t stride = (width + 15) / 16 * 16;
    const Tensor rows = normal({2, stride}, DType::f32);
    const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1}, {2}, kCuda);
    const Tensor factor = Tensor::from(std::vector<double>{0.3}, {1}, kCuda);
    std::vector<std::vector<Tensor>> results;
    for (const Tensor& placed : {rows, moved(rows)}) {
      const Tensor nll = Tensor::zeros({2}, DType::f32, kCuda);
      const Tensor gradients = Tensor::zeros({2, stride}, DType::bf16, kCuda);
      ops::cross_entropy(nll, gradients.slice(1, 0, width), placed.slice(1, 0, width),
                         integers({8196, static_cast<int32_t>(width) - 2}), mask, factor, {});
      results.push_back({nll, gradients});
    }
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(results[0][i], results[1][i])) << width << ", " << i;
    const std::vector<bfloat16> gradients = results[0][1].to_vector<bfloat16>();
    double sum = 0;  // of probabilities, less one for the target
    for (size_t v = 0; v < static_cast<size_t>(width); ++v) sum += static_cast<float>(gradients[v]);
    EXPECT_NEAR(sum, 0, 0.3 / 256) << width;
    for (size_t v = static_cast<size_t>(width); v < static_cast<size_t>(stride); ++v)
      EXPECT_EQ(gradients[v].bits, 0) << v;
  }
}

// Sums of gradients that take all the shared memory there is without asking, and such that do not fit into it.
TEST_F(CudaKernels, VeryWideNormAgreesWithTheCpu) {
  for (const int64_t width : {3072, 6152}) {
    const std::vector<Tensor> inputs{random_.normal({2, width}), random_.normal({2}),     random_.normal({2}),
                                     random_.normal({2, width}), random_.normal({width}), random_.normal({width})};
    std::vector<Tensor> results[2];
    for (const Device device : {kCpu, kCuda}) {
      std::vector<Tensor>& in = results[device == kCpu ? 0 : 1];
      for (const Tensor& input : inputs) in.push_back(on_device(input, device));
      ops::layer_norm(in[0], in[1], in[2], in[3], in[4], in[5], 1e-3);
      ops::layer_norm_backward(in[0], clone(in[4]), in[5], in[3], in[3], in[4], in[1], in[2], true);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_LE(relative_error(results[1][i], results[0][i]), 1e-12) << width << ", " << i;
    }
  }
}

TEST_F(CudaKernels, TokensBeyondTheVocabularyBecomeNan) {
  const Tensor logits = normal({4, 3}, DType::f32);
  const Tensor targets = integers({2, 3, -1, 1 << 30});
  const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1, 1, 0}, {4}, kCuda);
  const Tensor nll = Tensor::zeros({4}, DType::f32, kCuda);
  ops::cross_entropy(nll, logits, logits, targets, mask, Tensor::from(std::vector<double>{1}, {1}, kCuda), {});
  const std::vector<float> losses = nll.to_vector<float>();
  EXPECT_TRUE(std::isfinite(losses[0]));
  EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2]));
  EXPECT_EQ(losses[3], 0);

  const Tensor out = Tensor::zeros({4, 2}, DType::f32, kCuda);
  ops::embedding(out, normal({3, 2}, DType::f32), targets, 1);
  const std::vector<float> rows = out.to_vector<float>();
  EXPECT_TRUE(std::isfinite(rows[0]) && std::isfinite(rows[1]));
  // A negative id is a row of another table.
  for (size_t i = 2; i < 8; ++i) EXPECT_TRUE(i == 4 || i == 5 ? rows[i] == 0 : std::isnan(rows[i])) << i;
  const Tensor dtable = Tensor::zeros({3, 2}, DType::f32, kCuda);
  const Tensor dout = Tensor::from(std::vector<float>(8, 1.0F), {4, 2}, kCuda);
  ops::embedding_backward(dtable, dout, targets, 1);
  EXPECT_EQ(dtable.to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 1, 1}));
}

TEST_F(CudaKernels, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kWidth = 300;
  for (const size_t where : {size_t{0}, size_t{20}, size_t{299}}) {
    std::vector<float> values(static_cast<size_t>(2 * kWidth));
    values[where] = nan;
    const Tensor x = Tensor::from(values, {2, kWidth}, kCuda);
    const Tensor nll = Tensor::zeros({2}, DType::f32, kCuda);
    const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1}, {2}, kCuda);
    ops::cross_entropy(nll, {}, x, integers({1, 1}), mask, {}, {});
    EXPECT_TRUE(std::isnan(nll.to_vector<float>()[0])) << where;
    EXPECT_FALSE(std::isnan(nll.to_vector<float>()[1])) << where;
    const Tensor y = clone(x);
    for (const ops::Activation kind :
         {ops::Activation::relu, ops::Activation::gelu, ops::Activation::silu, ops::Activation::gelu_erf}) {
      ops::activation(y, x, kind);
      EXPECT_TRUE(std::isnan(y.to_vector<float>()[where])) << where;
    }
    ops::swiglu(y, x, Tensor::from(std::vector<float>(values.size(), 1.0F), {2, kWidth}, kCuda));
    EXPECT_TRUE(std::isnan(y.to_vector<float>()[where])) << where;
  }
}

}  // namespace
}  // namespace quire::test
