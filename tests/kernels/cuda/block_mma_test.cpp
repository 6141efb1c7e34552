// Tests which calls of listed attention and of attention to blocks run on tensor cores, and that operands lie in
// different banks. The kernels run on the host, which counts the products of tensor cores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/block_attention.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda_scratch.h"
#include "kernels/listed_attention.h"
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

Products of_weights(const Sizes& sizes) {
  constexpr int64_t kChunks = 2, kLength = 3;
  ops::ListedAttentionInputs in;
  in.q = normal(sizes, {1, kQueries, 1, sizes.size}, sizes.offset);
  in.keys = normal(sizes, {kChunks, kLength, 1, sizes.size});
  in.values = normal(sizes, {kChunks, kLength, 1, sizes.value_size});
  in.weight = normal({.dtype = wide_type(sizes.dtype)}, {1, 1, kChunks});
  in.blocks = on_device(Tensor::from(std::vector<int32_t>{1, 0}, {1, 1, 1, kChunks}), kCuda);
  in.list = Tensor::zeros({1, kQueries}, DType::i32, kCuda);
  const Tensor out = Tensor::empty({1, kQueries, 1, sizes.value_size}, sizes.dtype, kCuda);
  const Tensor lse = Tensor::empty({1, 1, kQueries, kChunks}, wide_type(sizes.dtype), kCuda);
  return products_of([&] { ops::listed_attention(out, lse, {}, in); },
                     [&] {
                       const ops::ListedAttentionGradients d{Tensor::empty_like(in.q), Tensor::empty_like(in.keys),
                                                             Tensor::empty_like(in.values),
                                                             Tensor::empty_like(in.weight)};
                       ops::listed_attention_backward(d, out, {}, {}, lse, in);
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

// With a landmark, two blocks of three that there are.
ops::ListedAttentionInputs stored_inputs(const Sizes& sizes, int64_t queries) {
  constexpr int64_t kBlocks = 3, kLength = 4, kChosen = 2, kHeads = 2;
  RandomTensors random(7);
  ops::ListedAttentionInputs in;
  in.q = normal(sizes, {1, queries, kHeads, sizes.size}, sizes.offset);
  in.keys = normal(sizes, {kBlocks, kLength, 1, sizes.size});
  in.values = normal(sizes, {kBlocks, kLength, 1, sizes.value_size});
  in.blocks = on_device(random.integers({1, queries, kHeads, kChosen}, -1, kBlocks), kCuda);
  in.rotation = on_device(random.integers({1, queries, kHeads, kChosen}, 0, 3), kCuda);
  in.table = on_device(random.normal({3, 2, 3}, 1, 0, wide_type(sizes.dtype)), kCuda);
  in.landmarks = true;
  return in;
}

struct StoredResults {
  Tensor out, lse, dq;

  explicit StoredResults(const ops::ListedAttentionInputs& in)
      : out(Tensor::empty({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.values.dim(3)}, in.q.dtype(), kCuda)),
        lse(Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, wide_type(in.q.dtype()), kCuda)),
        dq(Tensor::empty_like(in.q)) {}
};

Products of_stored(const Sizes& sizes, int64_t queries = kQueries) {
  const ops::ListedAttentionInputs in = stored_inputs(sizes, queries);
  const StoredResults to(in);
  return products_of([&] { ops::listed_attention(to.out, to.lse, {}, in); },
                     [&] {
                       ops::listed_attention_backward({to.dq, {}, {}, {}}, to.out, to.lse, to.out, to.lse, in);
                     });
}

void expect_products(const Sizes& sizes, bool forward, bool backward) {
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + " " + std::to_string(sizes.size) + " " +
               std::to_string(sizes.value_size) + " " + std::to_string(sizes.offset));
  const Products blocks = of_blocks(sizes);
  EXPECT_EQ(blocks.forward, forward);
  EXPECT_EQ(blocks.backward, backward);
  // If values are too wide for the backward pass, listed blocks use the other kernels in both passes.
  for (const Products& listed : {of_weights(sizes), of_stored(sizes)}) {
    EXPECT_EQ(listed.forward, backward);
    EXPECT_EQ(listed.backward, backward);
  }
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
  const Products of_one_query = of_stored({}, 1);
  EXPECT_FALSE(of_one_query.forward || of_one_query.backward);
}

TEST(BlocksOnTensorCores, LinesThatAreWorkedOnAtATimeChangeNothing) {
  const std::string missing = missing_cuda_device();
  if (!missing.empty()) GTEST_SKIP() << missing;
  const ops::ListedAttentionInputs in = stored_inputs({.size = 16, .value_size = 24}, 50);
  const auto results = [&] {
    StoredResults to(in);
    ops::listed_attention(to.out, to.lse, {}, in);
    ops::listed_attention_backward({to.dq, {}, {}, {}}, to.out, to.lse, to.out, to.lse, in);
    return to;
  };
  const StoredResults whole = results();
  const int64_t saved = std::exchange(ListedScratch::max_bytes, int64_t{20} << 10);
  const StoredResults parts = results();
  ListedScratch::max_bytes = 1;  // of a line there are always all
  const StoredResults lines = results();
  ListedScratch::max_bytes = saved;
  for (const StoredResults* other : {&parts, &lines}) {
    EXPECT_TRUE(same_bits(other->out, whole.out));
    EXPECT_TRUE(same_bits(other->lse, whole.lse));
    EXPECT_TRUE(same_bits(other->dq, whole.dq));
  }
}

// Queries whose entries share a tile with it change by no bit.
TEST(BlocksOnTensorCores, ABlockThatIsNoNumberReachesThoseThatReadIt) {
  const std::string missing = missing_cuda_device();
  if (!missing.empty()) GTEST_SKIP() << missing;
  ops::ListedAttentionInputs in = stored_inputs({}, 20);
  const auto results = [&] {
    StoredResults to(in);
    ops::listed_attention(to.out, to.lse, {}, in);
    const Tensor dout = normal({}, to.out.shape());
    ops::listed_attention_backward({to.dq, {}, {}, {}}, dout, {}, to.out, to.lse, in);
    return std::vector<Tensor>{on_device(to.out, kCpu), on_device(to.dq, kCpu)};
  };
  for (const bool landmarks : {false, true}) {
    in.landmarks = landmarks;
    const std::vector<Tensor> expected = results();
    constexpr int32_t kSpoiled = 1;
    const Tensor keys = on_device(in.keys, kCpu), values = on_device(in.values, kCpu);
    for (const Tensor* stored : {&keys, &values}) {
      const int64_t of_block = stored->numel() / stored->dim(0);
      std::fill_n(stored->data<bfloat16>() + kSpoiled * of_block, of_block,
                  bfloat16(std::numeric_limits<float>::quiet_NaN()));
    }
    const Tensor whole_keys = std::exchange(in.keys, on_device(keys, kCuda));
    const Tensor whole_values = std::exchange(in.values, on_device(values, kCuda));
    const std::vector<Tensor> got = results();
    in.keys = whole_keys;
    in.values = whole_values;
    const std::vector<int32_t> slot = on_device(in.blocks, kCpu).to_vector<int32_t>();
    int64_t reached = 0;
    for (size_t line = 0; line < slot.size() / 2; ++line) {
      const bool reads = slot[2 * line] == kSpoiled || slot[2 * line + 1] == kSpoiled;
      reached += reads ? 1 : 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const int64_t width = got[i].dim(3);
        const bfloat16* const x = got[i].data<bfloat16>() + static_cast<int64_t>(line) * width;
        const bfloat16* const y = expected[i].data<bfloat16>() + static_cast<int64_t>(line) * width;
        for (int64_t f = 0; f < width; ++f) {
          EXPECT_TRUE(reads ? std::isnan(static_cast<float>(x[f])) : x[f].bits == y[f].bits) << line << " " << i;
        }
      }
    }
    EXPECT_GT(reached, 0);
    EXPECT_LT(reached, static_cast<int64_t>(slot.size() / 2));
  }
}

}  // namespace
}  // namespace quire::test
