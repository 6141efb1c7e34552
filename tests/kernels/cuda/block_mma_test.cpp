// Tests which calls of listed attention and of attention to blocks run on tensor cores, and that operands lie in
// different banks. The kernels run on the host, which counts the products of tensor cores.
#include <gtest/gtest.h>

#include <utility>

#include "kernels/block_attention.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda_scratch.h"
#include "tests/kernels/listed_forms.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

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

Products of_listed(ListedForm form, const Sizes& sizes, int64_t queries = kQueries) {
  form.q = {1, queries, 2, 1, sizes.size, sizes.value_size};
  ops::ListedAttentionInputs in = listed_call(form, sizes.dtype, kCuda);
  in.q = normal(sizes, in.q.shape(), sizes.offset);
  std::vector<Tensor> outputs;
  return products_of([&] { outputs = attend_listed(in); }, [&] { listed_gradients(in, outputs); });
}

const ListedForm kChunks{.step = ListedStep::weights, .blocks = {3, 3}, .lists = {1, kQueries}};
const ListedForm kStored{.blocks = {3, 4}, .pairs = 3};

void expect_products(const Sizes& sizes, bool forward, bool backward) {
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + " " + std::to_string(sizes.size) + " " +
               std::to_string(sizes.value_size) + " " + std::to_string(sizes.offset));
  const Products blocks = of_blocks(sizes);
  EXPECT_EQ(blocks.forward, forward);
  EXPECT_EQ(blocks.backward, backward);
  // If values are too wide for the backward pass, listed blocks use the other kernels in both passes.
  for (const Products& listed : {of_listed(kChunks, sizes), of_listed(kStored, sizes)}) {
    EXPECT_EQ(listed.forward, backward);
    EXPECT_EQ(listed.backward, backward);
  }
}

using BlocksOnTensorCores = CudaTest;

TEST_F(BlocksOnTensorCores, HeadsInWholeChunks) {
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
  const Products of_one_query = of_listed(kStored, {}, 1);
  EXPECT_FALSE(of_one_query.forward || of_one_query.backward);
}

TEST_F(BlocksOnTensorCores, LinesThatAreWorkedOnAtATimeChangeNothing) {
  const ops::ListedAttentionInputs in =
      listed_call({.q = {1, 50, 2, 1, 16, 24}, .blocks = {3, 4}, .pairs = 3}, DType::bf16, kCuda);
  const auto results = [&] {
    std::vector<Tensor> all = attend_listed(in);
    all.push_back(listed_gradients(in, all)[0]);
    return all;
  };
  const std::vector<Tensor> whole = results();
  const int64_t saved = std::exchange(ListedScratch::max_bytes, int64_t{20} << 10);
  const std::vector<Tensor> parts = results();
  ListedScratch::max_bytes = 1;  // of a line there are always all
  const std::vector<Tensor> lines = results();
  ListedScratch::max_bytes = saved;
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_TRUE(same_bits(parts[n], whole[n]) && same_bits(lines[n], whole[n]));
}

}  // namespace
}  // namespace quire::test
