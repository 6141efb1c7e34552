// Which calls of grouped cross-attention and of attention to blocks run on tensor cores, on the host, where their
// products are counted; and that operands lie in different banks.
#include <gtest/gtest.h>

#include "kernels/block_attention.h"
#include "kernels/cuda/mma.h"
#include "kernels/grouped_cross_attention.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};
constexpr int64_t kQueries = 5;

struct Sizes {
  DType dtype = DType::bf16;
  int64_t size = 16, value_size = 8;
  int64_t offset = 0;  // values between the beginning of a line of 16 bytes and q
};

Tensor normal(const Sizes& sizes, const Shape& shape, int64_t offset = 0) {
  RandomTensors random(static_cast<uint32_t>(shape.numel()));
  const Tensor all = on_device(random.normal({offset + shape.numel()}, 1, 0, sizes.dtype), kCuda);
  return all.slice(0, offset, offset + shape.numel()).reshape(shape);
}

// Products of the forward and of the backward pass.
struct Products {
  bool forward, backward;
};
template <typename Forward, typename Backward>
Products products_of(Forward&& forward, Backward&& backward) {
  const int64_t conflicts = shim::bank_conflicts();
  const int64_t before = shim::tensor_products();
  forward();
  const int64_t between = shim::tensor_products();
  backward();
  EXPECT_EQ(shim::bank_conflicts(), conflicts);
  return {between > before, shim::tensor_products() > between};
}

Products of_grouped(const Sizes& sizes) {
  constexpr int64_t kChunks = 2, kLength = 3;
  ops::GroupedCrossAttentionInputs in;
  in.q = normal(sizes, {1, kQueries, 1, sizes.size}, sizes.offset);
  in.keys = normal(sizes, {kChunks, kLength, 1, sizes.size});
  in.values = normal(sizes, {kChunks, kLength, 1, sizes.value_size});
  in.weight = normal({.dtype = wide_type(sizes.dtype)}, {1, 1, kChunks});
  in.chosen = on_device(Tensor::from(std::vector<int32_t>{1, 0}, {1, 1, kChunks}), kCuda);
  in.list = Tensor::zeros({1, kQueries}, DType::i32, kCuda);
  const Tensor out = Tensor::empty({1, kQueries, 1, sizes.value_size}, sizes.dtype, kCuda);
  const Tensor lse = Tensor::empty({1, 1, kQueries, kChunks}, wide_type(sizes.dtype), kCuda);
  return products_of([&] { ops::grouped_cross_attention(out, lse, in); },
                     [&] {
                       const ops::GroupedCrossAttentionGradients d{
                           Tensor::empty_like(in.q), Tensor::empty_like(in.keys), Tensor::empty_like(in.values),
                           Tensor::empty_like(in.weight)};
                       ops::grouped_cross_attention_backward(d, out, lse, in);
                     });
}

Products of_blocks(const Sizes& sizes) {
  ops::BlockAttentionInputs in;
  in.q = normal(sizes, {1, kQueries, 1, sizes.size}, sizes.offset);
  in.k = normal(sizes, {1, kQueries, 1, sizes.size});
  in.v = normal(sizes, {1, kQueries, 1, sizes.value_size});
  in.block = on_device(Tensor::from(std::vector<int32_t>{0, 0, 0, 1, 1}, {1, kQueries}), kCuda);
  in.landmark = on_device(Tensor::from(std::vector<uint8_t>{0, 0, 1, 0, 0}, {1, kQueries}), kCuda);
  in.first = Tensor::zeros({1, kQueries}, DType::i32, kCuda);
  const Tensor out = Tensor::empty({1, kQueries, 1, sizes.value_size}, sizes.dtype, kCuda);
  const Tensor lse = Tensor::empty({1, 1, kQueries}, wide_type(sizes.dtype), kCuda);
  return products_of([&] { ops::block_attention(out, lse, in); },
                     [&] {
                       const ops::BlockAttentionGradients d{Tensor::empty_like(in.q), Tensor::empty_like(in.k),
                                                            Tensor::empty_like(in.v)};
                       ops::block_attention_backward(d, out, Tensor(), out, lse, in);
                     });
}

void expect_products(const Sizes& sizes, bool forward, bool backward) {
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + " " + std::to_string(sizes.size) + " " +
               std::to_string(sizes.value_size) + " " + std::to_string(sizes.offset));
  const Products grouped = of_grouped(sizes);
  EXPECT_EQ(grouped.forward, forward);
  EXPECT_EQ(grouped.backward, backward);
  const Products blocks = of_blocks(sizes);
  EXPECT_EQ(blocks.forward, forward);
  EXPECT_EQ(blocks.backward, backward);
}

TEST(BlocksOnTensorCores, HeadsInWholeChunks) {
  const std::string missing = missing_cuda_device();
  if (!missing.empty()) GTEST_SKIP() << missing;
  expect_products({.size = 8}, true, true);
  expect_products({.size = 64, .value_size = 64}, true, true);
  expect_products({.size = 128, .value_size = 128}, true, true);
  expect_products({.size = 72, .value_size = 136}, true, false);
  expect_products({.size = 136}, false, false);
  expect_products({.size = 12}, false, false);
  expect_products({.value_size = 12}, false, false);
  expect_products({.offset = 4}, false, false);
  expect_products({.offset = 8}, true, true);
  expect_products({.dtype = DType::f32}, false, false);
}

}  // namespace
}  // namespace quire::test
