// A line of a batch gets the same bits wherever it lies: results do not depend on what other rows there are.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/axis.h"
#include "kernels/delta.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kWidth = 99;  // no multiple of a vector, so that rows begin at all places of one

// Sets its results from rows of x.
using Operation = std::function<std::vector<Tensor>(const Tensor& x)>;

void expect_same_bits_alone(const Operation& operation, DType dtype) {
  const Tensor x = RandomTensors(3).normal({kRows, kWidth}, 1, 2, dtype);
  const std::vector<Tensor> together = operation(x);
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<Tensor> alone = operation(clone(x.slice(0, row, row + 1)));
    ASSERT_EQ(alone.size(), together.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(same_bits(alone[i], clone(together[i].slice(0, row, row + 1)))) << "row " << row << ", result " << i;
    }
  }
}

TEST(LineBits, AreThoseOfTheLineAlone) {
  const auto like = [](const Tensor& x) { return Tensor::empty_like(x); };
  const auto column = [](const Tensor& x) { return Tensor::empty({x.dim(0)}, x.dtype()); };
  std::vector<std::pair<std::string, Operation>> operations{
      {"sum",
       [&](const Tensor& x) {
         const Tensor y = column(x);
         ops::sum_axis(y, x, 1, 1);
         return std::vector{y};
       }},
      {"softmax",
       [&](const Tensor& x) {
         const Tensor y = like(x), lse = column(x);
         ops::softmax(y, lse, x, {});
         return std::vector{y, lse};
       }},
      {"log of a sum",
       [&](const Tensor& x) {
         const Tensor lse = column(x), kept = like(x), same = column(x);
         ops::softmax({}, lse, x, {});
         ops::softmax(kept, same, x, {});
         EXPECT_TRUE(same_bits(lse, same)) << "it depends on whether shares are kept";
         return std::vector{lse};
       }},
      {"layer_norm",
       [&](const Tensor& x) {
         const Tensor y = like(x), mean = column(x), rstd = column(x);
         const Tensor one = RandomTensors(5).normal({kWidth}, 1, 0, x.dtype());
         ops::layer_norm(y, mean, rstd, x, one, one, 1e-5);
         return std::vector{y, mean, rstd};
       }},
      {"swiglu",
       [&](const Tensor& x) {
         const Tensor y = like(x);
         ops::swiglu(y, x, x);
         return std::vector{y};
       }},
      {"delta_decay", [&](const Tensor& x) {
         const Tensor y = Tensor::empty({x.dim(0), 1, kWidth}, x.dtype());
         const Tensor rate = Tensor::zeros({1}, x.dtype());
         const Tensor bias = RandomTensors(5).normal({1, kWidth}, 1, 0, x.dtype());
         ops::delta_decay(y, {.a = x.reshape({x.dim(0), 1, kWidth}), .log_rate = rate, .bias = bias});
         return std::vector{y};
       }}};
  for (const ops::Unary kind : {ops::Unary::exp, ops::Unary::log, ops::Unary::sigmoid, ops::Unary::tanh}) {
    operations.push_back({"unary " + std::to_string(static_cast<int>(kind)), [&like, kind](const Tensor& x) {
                            const Tensor y = like(x);
                            ops::unary(y, x, kind);
                            return std::vector{y};
                          }});
  }
  for (const ops::Activation kind : {ops::Activation::gelu, ops::Activation::silu, ops::Activation::gelu_erf}) {
    operations.push_back({"activation " + std::to_string(static_cast<int>(kind)), [&like, kind](const Tensor& x) {
                            const Tensor y = like(x);
                            ops::activation(y, x, kind);
                            return std::vector{y};
                          }});
  }
  for (const auto& [name, operation] : operations) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      SCOPED_TRACE(name + " " + name_of(dtype));
      expect_same_bits_alone(operation, dtype);
    }
  }
}

// A row with fewer entries than the longest one has places that a mask hides before its own.
TEST(LineBits, DoNotDependOnMaskedPlaces) {
  const Tensor x = RandomTensors(3).normal({1, kWidth}, 1, 0, DType::f32);
  const Tensor y = Tensor::empty_like(x), lse = Tensor::empty({1}, DType::f32);
  ops::softmax(y, lse, x, {});
  for (const int64_t before : {1, 7, 16, 29}) {
    const Tensor wide = RandomTensors(4).normal({1, before + kWidth}, 1, 0, DType::f32);
    std::vector<uint8_t> mask(static_cast<size_t>(before + kWidth), 1);
    std::fill_n(mask.begin(), before, 0);
    wide.slice(1, before, before + kWidth).copy_from(x);
    const Tensor shares = Tensor::empty_like(wide), sum = Tensor::empty({1}, DType::f32);
    ops::softmax(shares, sum, wide, Tensor::from(mask, {1, before + kWidth}));
    EXPECT_TRUE(same_bits(sum, lse)) << before;
    EXPECT_TRUE(same_bits(clone(shares.slice(1, before, before + kWidth)), y)) << before;
  }
}

}  // namespace
}  // namespace quire::test
