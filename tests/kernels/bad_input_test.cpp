// Kernels refuse what does not fit, and say what it was.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/position.h"
#include "kernels/state.h"
#include "kernels/vq.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
  return Tensor::zeros(shape, dtype);
}

TEST(BadInput, TokenIdsBeyondTheVocabulary) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{0, 3}, {2});
  EXPECT_ERROR(ops::embedding(zeros({2, 2}), zeros({3, 2}), ids, 1), ErrorKind::data,
               "token id 3 is outside the vocabulary of 3");
  const Tensor mask = Tensor::from(std::vector<uint8_t>{1, 1}, {2});
  EXPECT_ERROR(ops::cross_entropy(zeros({2}), {}, zeros({2, 3}), ids, mask, {}, {}), ErrorKind::data,
               "target 3 is outside the vocabulary of 3");
  const Tensor masked = Tensor::from(std::vector<uint8_t>{1, 0}, {2});
  EXPECT_NO_THROW(ops::cross_entropy(zeros({2}), {}, zeros({2, 3}), ids, masked, {}, {}));
}

TEST(BadInput, ShapesThatDoNotFit) {
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({2, 5}), zeros({4, 3}), {}), ErrorKind::internal,
               "gemm: [2, 3] from [2, 5] and [4, 3]");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({5, 2}).transpose(0, 1), zeros({5, 3}), {}), ErrorKind::internal,
               "gemm: inner strides must be 1");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({2, 5}), zeros({5, 3}),
                         {.gradient_of = ops::Activation::gelu, .at = zeros({3, 2})}),
               ErrorKind::internal, "gemm: an activation's gradient at [3, 2] for [2, 3]");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({2, 5}), zeros({5, 3}),
                         {.accumulate = true, .gradient_of = ops::Activation::gelu, .at = zeros({2, 3})}),
               ErrorKind::internal, "an activation's gradient needs a contiguous result to which nothing is added");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({2, 5}), zeros({5, 3}), {.residual = zeros({3})}), ErrorKind::internal,
               "gemm: residual f32 [3] for f32 [2, 3]");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({2, 5}), zeros({5, 3}), {.sums = zeros({2})}), ErrorKind::internal,
               "gemm: sums of rows go with a contiguous matrix that is transposed");
  EXPECT_ERROR(ops::gemm(zeros({2, 3}), zeros({5, 2}), zeros({5, 3}), {.transpose_a = true, .sums = zeros({3})}),
               ErrorKind::internal, "gemm: sums f32 [3] of f32 [5, 2] transposed");
  EXPECT_ERROR(ops::rms_norm(zeros({2, 3}), zeros({2}), zeros({2, 3}), zeros({4}), 1e-5), ErrorKind::internal,
               "rms_norm: weight has 4 values but x is [2, 3]");
  EXPECT_ERROR(ops::sinusoid(zeros({2, 3}), 0, 1e4), ErrorKind::internal, "sinusoid: width 3 is odd");
  EXPECT_ERROR(ops::dropout(zeros({6}), zeros({6}), Tensor(), {}), ErrorKind::internal, "[6] is not [R, T, N]");
  EXPECT_ERROR(ops::add(zeros({2}), zeros({2}), zeros({3}), 1, 1), ErrorKind::internal, "add: f32 [3] beside f32 [2]");
  const Tensor one = Tensor::from(std::vector<int32_t>{1}, {1});
  EXPECT_ERROR(ops::ring_append(zeros({1, 4, 2}), zeros({1, 3, 5}), one, one, one, 1), ErrorKind::internal,
               "ring_append: values [1, 3, 5] into ring [1, 4, 2]");
  EXPECT_ERROR(ops::ring_gather(zeros({1, 5, 2}), zeros({1, 4, 2}), one, one), ErrorKind::internal,
               "ring_gather: [1, 5, 2] out of ring [1, 4, 2]");
}

TEST(BadInput, CodesAndCachesThatDoNotFit) {
  const auto integers = [](const Shape& shape) { return zeros(shape, DType::i32); };
  EXPECT_ERROR(ops::nearest_code(integers({4, 1}), zeros({4, 1, 3}), zeros({4, 1}), zeros({4, 1, 3}), zeros({2, 5, 3})),
               ErrorKind::internal, "nearest_code: codebook is [2, 5, 3] f32; it must be [1, 5, 3] f32 and contiguous");
  const Tensor control = Tensor::from(std::vector<double>{1, 1}, {2});
  EXPECT_ERROR(ops::codebook_update(zeros({1, 5, 3}), zeros({1, 5}), zeros({1, 5, 3}), zeros({1, 5}), {}, {}, control,
                                    {.reseed = 1}),
               ErrorKind::internal, "codewords are to be seeded anew, but there are no seeds");
  EXPECT_ERROR(ops::codebook_update(zeros({1, 5, 3}), zeros({1, 5}), zeros({1, 5, 3}), zeros({1, 5}), {}, {}, control,
                                    {.decay = 1}),
               ErrorKind::internal, "decay 1 is not in [0, 1)");

  ops::CodeCacheInputs caches;
  caches.v = zeros({1, 3, 1, 2});
  caches.tokens.codes = Tensor::from(std::vector<int32_t>{0, 4, 1}, {1, 3, 1});
  caches.mean = zeros({1, 1, 4, 2});
  caches.count = zeros({1, 1, 4});
  caches.tokens.origin = integers({1, 2});
  caches.tokens.limit = Tensor::from(std::vector<int32_t>{0, 3}, {1, 2});
  const ops::TokensByCode by_code{integers({3}), integers({1, 2, 1, 4, 2})};
  EXPECT_ERROR(ops::sort_by_code(by_code, caches.tokens), ErrorKind::internal, "sort_by_code: code 4 of 4");
  caches.tokens.codes = integers({1, 3, 1});
  caches.tokens.limit = Tensor::from(std::vector<int32_t>{0, 5}, {1, 2});
  EXPECT_ERROR(ops::sort_by_code(by_code, caches.tokens), ErrorKind::internal,
               "sort_by_code: tokens [0, 5) of 3 with a window of 0");
  EXPECT_ERROR(ops::code_caches(zeros({1, 1, 1, 4, 2}), zeros({1, 1, 4, 2}), zeros({1, 2, 1, 4}), caches,
                                {integers({3}), integers({1, 2, 1, 4})}),
               ErrorKind::internal, "sort_by_code: ranges is [1, 2, 1, 4] i32; it must be [1, 2, 1, 4, 2] i32");

  caches.window_v = zeros({1, 2, 1, 2});
  EXPECT_ERROR(ops::code_caches(zeros({1, 1, 1, 4, 2}), zeros({1, 1, 4, 2}), zeros({1, 2, 1, 4}), caches, by_code),
               ErrorKind::internal, "code_caches: a window needs values, codes and its head");

  const ops::CodeAttentionInputs in{zeros({1, 5, 3, 2}), {}, zeros({2, 4, 2}), zeros({1, 2, 2, 4, 2}),
                                    zeros({1, 3, 2, 4}), 2};
  EXPECT_ERROR(ops::code_attention(zeros({1, 5, 3, 2}), zeros({1, 3, 5}), in), ErrorKind::internal,
               "code_attention: 3 query heads are no multiple of 2 key heads");
  ops::CodeAttentionInputs few = in;
  few.q = zeros({1, 5, 2, 2});
  EXPECT_ERROR(ops::code_attention(zeros({1, 5, 2, 2}), zeros({1, 2, 5}), few), ErrorKind::internal,
               "code_attention: 3 caches for 5 queries in blocks of 2");
}

TEST(BadInput, TypesAndDevicesThatDoNotFit) {
  const Tensor half = zeros({2}, DType::bf16);
  EXPECT_ERROR(ops::swiglu(half, half, half), ErrorKind::internal, "swiglu: bf16 has no CPU kernel");
  EXPECT_ERROR(ops::add(zeros({2}), zeros({2}), zeros({2}, DType::f64), 1, 1), ErrorKind::internal, "f64 [2] beside");
  EXPECT_ERROR(ops::scale(zeros({2}), Tensor::empty({2}, DType::f32, kMeta), 2), ErrorKind::internal,
               "scale: tensors on cpu:0 and meta:0");
}

// Vector forms of exp, max and tanh differ in what they make of a NaN; a lost one would go unnoticed for the whole run.
TEST(BadInput, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kWidth = 37;
  for (const int64_t where : {int64_t{0}, int64_t{20}, kWidth - 1}) {
    const Tensor x = zeros({2, kWidth});
    x.data<float>()[where] = nan;
    const Tensor nll = zeros({2});
    ops::cross_entropy(nll, {}, x, Tensor::from(std::vector<int32_t>{1, 1}, {2}),
                       Tensor::from(std::vector<uint8_t>{1, 1}, {2}), {}, {});
    EXPECT_TRUE(std::isnan(nll.data<float>()[0])) << where;
    EXPECT_FALSE(std::isnan(nll.data<float>()[1])) << where;
    const Tensor y = zeros({2, kWidth});
    for (const ops::Activation kind :
         {ops::Activation::relu, ops::Activation::gelu, ops::Activation::silu, ops::Activation::gelu_erf}) {
      ops::activation(y, x, kind);
      EXPECT_TRUE(std::isnan(y.data<float>()[where])) << where;
    }
    const Tensor one = zeros({2, kWidth});
    one.data<float>()[where] = 1;
    ops::swiglu(y, x, one);
    EXPECT_TRUE(std::isnan(y.data<float>()[where])) << where;
  }
}

// On the meta device operations do nothing: planning needs shapes and bytes only.
TEST(MetaDevice, ComputesNothing) {
  const Tensor x = Tensor::empty({1 << 20, 1 << 20}, DType::f32, kMeta);
  EXPECT_NO_THROW(ops::add(x, x, x, 1, 1));
}

}  // namespace
}  // namespace quire::test
