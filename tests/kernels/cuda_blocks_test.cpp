// Tests of attention to blocks on the CUDA device beyond the table of op cases; there the host does not read integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/block_attention.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

// Numbers that are no numbers of anything, and some that are.
Tensor wild_integers(RandomTensors& random, const Shape& shape) {
  const std::vector<int32_t> values{std::numeric_limits<int32_t>::min(), -70000, -1, 0, 1, 2, 3, 90000,
                                    std::numeric_limits<int32_t>::max()};
  std::vector<int32_t> wild;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    wild.push_back(values[static_cast<size_t>(random.below(static_cast<int64_t>(values.size())))]);
  }
  return on_device(Tensor::from(wild, shape), kCuda);
}

// Blocks of `period` keys in both rows, landmarks included.
void cut(ops::BlockAttentionInputs& in, int64_t period) {
  std::vector<int32_t> block;
  std::vector<uint8_t> landmark;
  const int64_t keys = in.k.dim(1);
  for (int64_t i = 0; i < 2 * keys; ++i) {
    block.push_back(static_cast<int32_t>(i % keys / period));
    landmark.push_back(i % keys % period == period - 1 ? 1 : 0);
  }
  in.block = on_device(Tensor::from(block, {2, keys}), kCuda);
  in.landmark = on_device(Tensor::from(landmark, {2, keys}), kCuda);
  in.first = Tensor::zeros({2, in.q.dim(1)}, DType::i32, kCuda);
}

struct Results {
  Tensor out, lse;
  ops::BlockAttentionGradients gradients;
};

std::vector<float> floats_of(const Tensor& tensor) {
  return converted(on_device(tensor, kCpu), DType::f32).to_vector<float>();
}

// In f32, and on tensor cores: in bf16 with heads in whole chunks of 8 features.
class CudaBlocks : public CudaTestWithParam<DType> {
 protected:
  static int64_t size() { return GetParam() == DType::bf16 ? 16 : 5; }
  static int64_t value_size() { return GetParam() == DType::bf16 ? 8 : 3; }

  static Tensor normal(RandomTensors& random, const Shape& shape) {
    return on_device(random.normal(shape, 1, 0, GetParam()), kCuda);
  }

  static ops::BlockAttentionInputs block_inputs(int64_t queries, int64_t keys) {
    RandomTensors random(3);
    ops::BlockAttentionInputs in;
    in.q = normal(random, {2, queries, 2, size()});
    in.k = normal(random, {2, keys, 1, size()});
    in.v = normal(random, {2, keys, 1, value_size()});
    return in;
  }

  static Results run(const ops::BlockAttentionInputs& in) {
    Results results;
    results.out = Tensor::empty({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)}, in.q.dtype(), kCuda);
    results.lse = Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, DType::f32, kCuda);
    ops::block_attention(results.out, results.lse, in);
    results.gradients = {Tensor::empty_like(in.q), Tensor::empty_like(in.k), Tensor::empty_like(in.v)};
    RandomTensors random(7);
    const Tensor dout = normal(random, results.out.shape());
    ops::block_attention_backward(results.gradients, dout, results.lse, results.out, results.lse, in);
    return results;
  }
};

TEST_P(CudaBlocks, KernelsStayInsideMemoryWhateverBlocksAre) {
  RandomTensors random(5);
  constexpr int64_t kQueries = 66;
  constexpr int64_t kKeys = 140;
  ops::BlockAttentionInputs in = block_inputs(kQueries, kKeys);
  for (const bool any_long : {false, true}) {
    in.block = wild_integers(random, {2, kKeys});
    if (any_long) {
      std::vector<int32_t> block;
      for (int64_t i = 0; i < 2 * kKeys; ++i) block.push_back(i % kKeys < 70 ? 3 : std::numeric_limits<int32_t>::max());
      in.block = on_device(Tensor::from(block, {2, kKeys}), kCuda);
    }
    in.first = wild_integers(random, {2, kQueries});
    in.landmark = on_device(random.flags({2, kKeys}), kCuda);
    in.dropout = 0.3;
    const Results marked = run(in);
    EXPECT_TRUE(same_bits(run(in).gradients.dk, marked.gradients.dk));
    in.landmark = Tensor();
    in.dropout = 0;
    const Results plain = run(in);
    EXPECT_TRUE(same_bits(run(in).gradients.dk, plain.gradients.dk));
  }
}

TEST_P(CudaBlocks, SlotsOfARowAreItsOwnWhateverHeadsAre) {
  RandomTensors random(8);
  constexpr int64_t kSlots = 5;
  const ops::BlockPlacing in{wild_integers(random, {3, 4, 2, 6}),
                             wild_integers(random, {3}),
                             wild_integers(random, {3}),
                             wild_integers(random, {3}),
                             kSlots,
                             40,
                             Tensor(),
                             Tensor(),
                             Tensor()};
  const Tensor slot = Tensor::empty_like(in.index);
  ops::place_blocks(slot, Tensor::empty_like(slot), Tensor::empty_like(slot), in);
  const std::vector<int32_t> slots = on_device(slot, kCpu).to_vector<int32_t>();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == -1) continue;
    EXPECT_EQ(slots[i] / kSlots, static_cast<int64_t>(i) / (4 * 2 * 6)) << slots[i];
  }
}

TEST_P(CudaBlocks, AGradientDoesNotDependOnWhichOthersAreAskedFor) {
  ops::BlockAttentionInputs in = block_inputs(70, 170);
  cut(in, 85);
  const Results all = run(in);
  RandomTensors random(7);
  const Tensor dout = normal(random, all.out.shape());
  const auto backward = [&](bool keys, bool values) {
    const ops::BlockAttentionGradients g{Tensor::empty_like(in.q), keys ? Tensor::empty_like(in.k) : Tensor(),
                                         values ? Tensor::empty_like(in.v) : Tensor()};
    ops::block_attention_backward(g, dout, all.lse, all.out, all.lse, in);
    EXPECT_TRUE(same_bits(g.dq, all.gradients.dq));
    return g;
  };
  EXPECT_TRUE(same_bits(backward(true, false).dk, all.gradients.dk));
  EXPECT_TRUE(same_bits(backward(false, true).dv, all.gradients.dv));
  backward(false, false);
}

TEST_P(CudaBlocks, NoQueriesGiveZeroGradients) {
  ops::BlockAttentionInputs in = block_inputs(0, 140);
  cut(in, 70);
  const Results results = run(in);
  for (const Tensor& gradient : {results.gradients.dk, results.gradients.dv}) {
    for (const double value : values_of(gradient)) EXPECT_EQ(value, 0.0);
  }
}

// Keys that nobody sees may hold anything.
TEST_P(CudaBlocks, UnseenKeysAreNotRead) {
  ops::BlockAttentionInputs in = block_inputs(20, 100);
  cut(in, 7);
  std::vector<int32_t> block = on_device(in.block, kCpu).to_vector<int32_t>();
  std::vector<float> keys = floats_of(in.k);
  std::vector<float> values = floats_of(in.v);
  const auto width = static_cast<size_t>(size());
  const auto value_width = static_cast<size_t>(value_size());
  const auto hide = [&](float with) {
    for (size_t key = 0; key < 20; ++key) {
      block[key] = -1;
      for (size_t f = 0; f < width; ++f) keys[key * width + f] = with;
      for (size_t f = 0; f < value_width; ++f) values[key * value_width + f] = with;
    }
    in.block = on_device(Tensor::from(block, in.block.shape()), kCuda);
    in.k = on_device(converted(Tensor::from(keys, in.k.shape()), GetParam()), kCuda);
    in.v = on_device(converted(Tensor::from(values, in.v.shape()), GetParam()), kCuda);
    return run(in);
  };
  const Results expected = hide(0);
  const Results got = hide(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(same_bits(got.out, expected.out));
  EXPECT_TRUE(same_bits(got.lse, expected.lse));
  EXPECT_TRUE(same_bits(got.gradients.dq, expected.gradients.dq));
  EXPECT_TRUE(same_bits(got.gradients.dk, expected.gradients.dk));
  EXPECT_TRUE(same_bits(got.gradients.dv, expected.gradients.dv));
}

TEST_P(CudaBlocks, NanReachesQueriesThatSeeIt) {
  for (const int64_t nan_key : {int64_t{3}, int64_t{84}}) {  // a regular key and the landmark of a long block
    ops::BlockAttentionInputs in = block_inputs(10, 100);
    cut(in, 85);
    std::vector<float> keys = floats_of(in.k);
    keys[static_cast<size_t>(nan_key * size())] = std::numeric_limits<float>::quiet_NaN();
    in.k = on_device(converted(Tensor::from(keys, in.k.shape()), GetParam()), kCuda);
    const Results results = run(in);
    const std::vector<double> lse = values_of(results.lse);
    for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isnan(lse[i])) << i;  // of row 0
    for (size_t i = 20; i < 40; ++i) EXPECT_FALSE(std::isnan(lse[i])) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaBlocks, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace quire::test
