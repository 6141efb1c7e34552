// Tests of listed attention beyond the table of op cases: extreme logits, operands that are not read,
// generation, and bad input. They run on the CPU and, with CUDA's kernels on the host (cuda/), on that device.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/thread_pool.h"
#include "kernels/listed_attention.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

constexpr int64_t kRows = 2, kQueries = 9, kHeads = 2, kSize = 8, kChunks = 5, kLength = 6, kLists = 3, kChosen = 2;

Tensor placed(const Tensor& tensor) {
  return tensor.to(test_device());
}

void set(const Tensor& tensor, const std::vector<float>& values) {
  tensor.copy_from(placed(converted(Tensor::from(values, tensor.shape()), tensor.dtype())));
}
void fill(const Tensor& tensor, float value) {
  set(tensor, std::vector<float>(static_cast<size_t>(tensor.numel()), value));
}
std::vector<float> floats_of(const Tensor& tensor) {
  return converted(on_device(tensor, kCpu), DType::f32).to_vector<float>();
}

struct Results {
  Tensor out, lse;
  ops::ListedAttentionGradients d;
};

// In f32, and in bf16 on devices that have it: there on tensor cores.
class ListedAttention : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (GetParam() == DType::bf16 && test_device() == kCpu) GTEST_SKIP() << "bf16 is for the CUDA device";
  }

  static Tensor normal(RandomTensors& random, const Shape& shape) {
    return placed(random.normal(shape, 1, 0, GetParam()));
  }

  // Chunk 4 is in no list. Each row begins within its first list.
  static ops::ListedAttentionInputs inputs() {
    RandomTensors random(11);
    ops::ListedAttentionInputs in;
    in.q = normal(random, {kRows, kQueries, kHeads, kSize});
    in.keys = normal(random, {kChunks, kLength, 1, kSize});
    in.values = normal(random, {kChunks, kLength, 1, kSize});
    in.weight = placed(random.normal({kRows, kLists, kChosen}, 1, 0, DType::f32));
    in.blocks =
        placed(Tensor::from(std::vector<int32_t>{0, 1, -1, 2, 3, 0, 2, 3, 1, -1, 3, 1}, {kRows, kLists, 1, kChosen}));
    std::vector<int32_t> list;
    for (int32_t t = 0; t < kQueries; ++t) list.push_back(t < 2 ? -1 : (t - 2) / 3);
    for (int32_t t = 0; t < kQueries; ++t) list.push_back(t / 4);
    in.list = placed(Tensor::from(list, {kRows, kQueries}));
    return in;
  }

  static Results run(const ops::ListedAttentionInputs& in, std::array<bool, 4> asked = {true, true, true, true}) {
    const auto like = [&](size_t n, const Tensor& tensor) { return asked[n] ? Tensor::empty_like(tensor) : Tensor(); };
    Results to{Tensor::empty_like(in.q),
               Tensor::empty({in.q.dim(0), kHeads, in.q.dim(1), kChosen}, DType::f32, test_device()),
               {like(0, in.q), like(1, in.keys), like(2, in.values), like(3, in.weight)}};
    ops::listed_attention(to.out, to.lse, {}, in);
    RandomTensors random(5);
    const Tensor dout = normal(random, in.q.shape());
    ops::listed_attention_backward(to.d, dout, {}, {}, to.lse, in);
    return to;
  }
};

bool all_finite(const Tensor& tensor) {
  const std::vector<double> values = values_of(tensor);
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

TEST_P(ListedAttention, VeryLowLogitsGetNothingBesideOne) {
  ops::ListedAttentionInputs in = inputs();
  fill(in.q, 100);
  fill(in.keys, -100);
  in.softmax_one = true;
  const Results low = run(in);
  for (const Tensor& zero : {low.out, low.lse, low.d.dq, low.d.dkeys, low.d.dvalues, low.d.dweight}) {
    for (const double value : values_of(zero)) EXPECT_EQ(value, 0.0);
  }
  in.softmax_one = false;
  const Results plain = run(in);
  EXPECT_TRUE(all_finite(plain.out) && all_finite(plain.d.dkeys) && all_finite(plain.d.dweight));
  EXPECT_GT(relative_error(plain.out, low.out), 1.0);  // a plain softmax divides by what there is
}

TEST_P(ListedAttention, VeryHighLogitsLeaveNothingToOne) {
  ops::ListedAttentionInputs in = inputs();
  fill(in.q, 100);
  std::vector<float> keys(static_cast<size_t>(in.keys.numel()), -100);
  for (int64_t chunk = 0; chunk < kChunks; ++chunk) {
    for (int64_t d = 0; d < kSize; ++d) keys[static_cast<size_t>((chunk * kLength + 3) * kSize + d)] = 100;
  }
  set(in.keys, keys);
  const Results plain = run(in);
  in.softmax_one = true;
  const Results one = run(in);
  EXPECT_TRUE(same_bits(one.out, plain.out));
  EXPECT_TRUE(same_bits(one.lse, plain.lse));
  for (const Tensor& gradient : {one.d.dq, one.d.dkeys, one.d.dvalues, one.d.dweight})
    EXPECT_TRUE(all_finite(gradient));
  EXPECT_FLOAT_EQ(static_cast<float>(values_of(one.lse)[2 * kChosen + 1]), kSize * 100 * 100);  // query 2 reads chunk 1
}

TEST_P(ListedAttention, KeysAtMinusInfinityGetNothing) {
  ops::ListedAttentionInputs in = inputs();
  fill(in.q, 1);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> keys(static_cast<size_t>(in.keys.numel()), 0);
  for (size_t i = 0; i < kSize * kLength; ++i) keys[kSize * kLength + i] = -infinity;  // all of chunk 1
  for (size_t i = 0; i < kSize; ++i) keys[2 * kSize * kLength + i] = -infinity;        // one key of chunk 2
  set(in.keys, keys);
  const Results results = run(in, {false, false, true, true});
  EXPECT_TRUE(all_finite(results.out) && all_finite(results.d.dvalues) && all_finite(results.d.dweight));
  const std::vector<double> dvalues = values_of(results.d.dvalues);
  for (size_t i = 0; i < kSize * kLength; ++i) EXPECT_EQ(dvalues[kSize * kLength + i], 0.0);
  for (size_t i = 0; i < kSize; ++i) EXPECT_EQ(dvalues[2 * kSize * kLength + i], 0.0);
  EXPECT_EQ(values_of(results.lse)[2 * kChosen + 1], -infinity);
}

TEST_P(ListedAttention, NanReachesQueriesThatReadIt) {
  ops::ListedAttentionInputs in = inputs();
  for (const bool one : {false, true}) {
    in.softmax_one = one;
    std::vector<float> keys = floats_of(in.keys);
    keys[kLength * kSize] = std::numeric_limits<float>::quiet_NaN();  // chunk 1
    set(in.keys, keys);
    const std::vector<double> out = values_of(run(in).out);
    for (int64_t t = 0; t < kRows * kQueries; ++t) {
      // List 0 of row 0, lists 1 and 2 of row 1.
      const bool reads = t < kQueries ? t >= 2 && t < 5 : t - kQueries >= 4;
      for (int64_t i = 0; i < kHeads * kSize; ++i) {
        EXPECT_EQ(std::isnan(out[static_cast<size_t>(t * kHeads * kSize + i)]), reads) << t;
      }
    }
  }
}

TEST_P(ListedAttention, ChunksThatNobodyChoosesAreNotRead) {
  ops::ListedAttentionInputs in = inputs();
  const Results expected = run(in);
  for (const Tensor& tensor : {in.keys, in.values}) {
    std::vector<float> values = floats_of(tensor);
    for (size_t i = 4 * kLength * kSize; i < values.size(); ++i) values[i] = std::numeric_limits<float>::quiet_NaN();
    set(tensor, values);
  }
  const Results got = run(in);
  EXPECT_TRUE(same_bits(got.out, expected.out));
  EXPECT_TRUE(same_bits(got.d.dq, expected.d.dq));
  EXPECT_TRUE(same_bits(got.d.dkeys, expected.d.dkeys));
  EXPECT_TRUE(same_bits(got.d.dweight, expected.d.dweight));
}

// Lists begin and end anywhere in a subsequence: its bits do not depend on where.
TEST_P(ListedAttention, AQueryAloneGetsWhatItGetsAmongOthers) {
  const ops::ListedAttentionInputs in = inputs();
  const Tensor all = run(in).out;
  for (const int64_t t : {int64_t{0}, int64_t{5}, int64_t{8}}) {
    ops::ListedAttentionInputs one = in;
    const auto at = [&](const Tensor& tensor, const Shape& shape) {
      const Tensor copy = Tensor::empty(shape, tensor.dtype(), tensor.device());
      copy.copy_from(tensor.slice(0, 1, 2).slice(1, t, t + 1).reshape(shape));
      return copy;
    };
    one.q = at(in.q, {1, 1, kHeads, kSize});
    one.list = at(in.list, {1, 1});
    one.blocks = in.blocks.slice(0, 1, 2);
    one.weight = in.weight.slice(0, 1, 2);
    EXPECT_TRUE(same_bits(run(one).out, at(all, {1, 1, kHeads, kSize}))) << t;
  }
}

// As many queries as a chunk with its landmark has, and sizes of a usual model.
TEST_P(ListedAttention, TheLastOfAChunkGetsWhatItGetsAlone) {
  RandomTensors random(12);
  constexpr int64_t kMany = 65, kWidth = 64;
  ops::ListedAttentionInputs in;
  in.q = normal(random, {1, kMany, 1, kWidth});
  in.keys = normal(random, {2, 64, 1, kWidth});
  in.values = normal(random, {2, 64, 1, kWidth});
  in.weight = placed(random.normal({1, 1, 2}, 1, 0, DType::f32));
  in.blocks = placed(Tensor::from(std::vector<int32_t>{1, 0}, {1, 1, 1, 2}));
  in.scale = 0.125;
  const auto out_of = [&](int64_t first, int64_t last) {
    ops::ListedAttentionInputs part = in;
    part.q = in.q.slice(1, first, last);
    part.list = Tensor::zeros({1, last - first}, DType::i32, test_device());
    const Tensor out = Tensor::empty_like(part.q);
    const Tensor lse = Tensor::empty({1, 1, last - first, 2}, DType::f32, test_device());
    ops::listed_attention(out, lse, {}, part);
    return out;
  };
  for (const bool one : {false, true}) {
    in.softmax_one = one;
    const Tensor all = out_of(0, kMany);
    for (const int64_t t : {int64_t{0}, int64_t{63}, int64_t{64}}) {
      EXPECT_TRUE(same_bits(out_of(t, t + 1), all.slice(1, t, t + 1))) << t;
    }
    EXPECT_TRUE(same_bits(out_of(60, 65), all.slice(1, 60, 65)));
  }
}

TEST_P(ListedAttention, AGradientDoesNotDependOnWhichOthersAreAskedFor) {
  const ops::ListedAttentionInputs in = inputs();
  const Results all = run(in);
  EXPECT_TRUE(same_bits(run(in, {true, false, false, false}).d.dq, all.d.dq));
  EXPECT_TRUE(same_bits(run(in, {false, true, false, false}).d.dkeys, all.d.dkeys));
  EXPECT_TRUE(same_bits(run(in, {false, false, true, false}).d.dvalues, all.d.dvalues));
  EXPECT_TRUE(same_bits(run(in, {false, false, false, true}).d.dweight, all.d.dweight));
}

// Rows that read the same chunk add to its gradients one after the other, on any number of threads.
TEST_P(ListedAttention, RowsThatShareChunksAddInTheirOrder) {
  if (test_device() != kCpu || GetParam() != DType::f32) GTEST_SKIP() << "about threads of the CPU";
  constexpr int64_t kMany = 8, kWide = 64;
  RandomTensors random(3);
  const auto normal = [&](const Shape& shape) { return random.normal(shape, 1, 0, DType::f32); };
  ops::ListedAttentionInputs in;
  in.q = normal({kMany, kWide, 1, kWide});
  in.keys = normal({2, kWide, 1, kWide});
  in.values = normal({2, kWide, 1, kWide});
  in.weight = normal({kMany, 1, 2});
  in.blocks = Tensor::from(std::vector<int32_t>{0, 1, 1, 0, 0, -1, 1, -1, 0, 1, -1, 1, 1, 0, 0, 1}, {kMany, 1, 1, 2});
  in.list = Tensor::zeros({kMany, kWide}, DType::i32);
  const Tensor out = Tensor::empty_like(in.q);
  const Tensor lse = Tensor::empty({kMany, 1, kWide, 2}, DType::f32);
  ops::listed_attention(out, lse, {}, in);
  const auto backward = [&](int threads) {
    ThreadPool pool(threads);
    const ThreadPool::Use use(pool);
    const ops::ListedAttentionGradients d{
        {}, Tensor::empty_like(in.keys), Tensor::empty_like(in.values), Tensor::empty_like(in.weight)};
    ops::listed_attention_backward(d, out, {}, {}, lse, in);
    return d;
  };
  const ops::ListedAttentionGradients expected = backward(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const ops::ListedAttentionGradients got = backward(4);
    EXPECT_TRUE(same_bits(got.dkeys, expected.dkeys));
    EXPECT_TRUE(same_bits(got.dvalues, expected.dvalues));
    EXPECT_TRUE(same_bits(got.dweight, expected.dweight));
  }
}

TEST_P(ListedAttention, NumbersThatNameNothing) {
  const ops::ListedAttentionInputs in = inputs();
  ops::ListedAttentionInputs wild = in;
  constexpr int32_t kLarge = std::numeric_limits<int32_t>::max();
  wild.blocks =
      placed(Tensor::from(std::vector<int32_t>{0, 5, -7, kLarge, 3, 0, 2, 3, 1, 90, 3, 1}, in.blocks.shape()));
  ops::ListedAttentionInputs lists = in;
  std::vector<int32_t> list = on_device(in.list, kCpu).to_vector<int32_t>();
  list[0] = kLists;
  lists.list = placed(Tensor::from(list, in.list.shape()));
  if (test_device() == kCpu) {
    EXPECT_ERROR(run(wild), ErrorKind::internal, "listed_attention: block 5 of 5");
    EXPECT_ERROR(run(lists), ErrorKind::internal, "listed_attention: list 3 of 3 in row 0");
    return;
  }
  // The host does not check these numbers, which name nothing.
  ops::ListedAttentionInputs tame = in;
  tame.blocks = placed(Tensor::from(std::vector<int32_t>{0, -1, -1, -1, 3, 0, 2, 3, 1, -1, 3, 1}, in.blocks.shape()));
  EXPECT_TRUE(same_bits(run(wild).d.dkeys, run(tame).d.dkeys));
  EXPECT_TRUE(same_bits(run(wild).d.dweight, run(tame).d.dweight));
  EXPECT_TRUE(same_bits(run(lists).d.dkeys, run(in).d.dkeys));
}

TEST_P(ListedAttention, WithoutQueriesOrChunksThereIsNothing) {
  ops::ListedAttentionInputs in = inputs();
  in.q = Tensor::zeros({kRows, 0, kHeads, kSize}, GetParam(), test_device());
  in.list = Tensor::zeros({kRows, 0}, DType::i32, test_device());
  const Results nobody = run(in);
  for (const Tensor& zero : {nobody.d.dkeys, nobody.d.dvalues, nobody.d.dweight}) {
    for (const double value : values_of(zero)) EXPECT_EQ(value, 0.0);
  }
  in = inputs();
  in.keys = Tensor::zeros({0, kLength, 1, kSize}, GetParam(), test_device());
  in.values = in.keys;
  in.blocks = placed(Tensor::from(std::vector<int32_t>(kRows * kLists * kChosen, -1), in.blocks.shape()));
  const Results nothing = run(in);
  for (const Tensor& zero : {nothing.out, nothing.lse, nothing.d.dq, nothing.d.dweight}) {
    for (const double value : values_of(zero)) EXPECT_EQ(value, 0.0);
  }
}

TEST_P(ListedAttention, ShapesAndTypesThatDoNotFit) {
  if (GetParam() != DType::f32) GTEST_SKIP() << "its messages name f32";
  const auto zeros_of = [](const Shape& shape, DType dtype = DType::f32) { return zeros(shape, dtype); };
  ops::ListedAttentionInputs in = inputs();
  in.keys = zeros_of({kChunks, kLength, 3, kSize});
  EXPECT_ERROR(run(in), ErrorKind::internal, "2 query heads are no multiple of 3 key heads");
  in.keys = zeros_of({kChunks, kLength, kSize});
  EXPECT_ERROR(run(in), ErrorKind::internal, "listed_attention: keys has 3 axes; it must have 4");
  in = inputs();
  in.values = zeros_of({kChunks, kLength + 1, 1, kSize});
  EXPECT_ERROR(run(in), ErrorKind::internal, "values is [5, 7, 1, 8] f32; it must be [5, 6, 1, 8] f32 and contiguous");
  in = inputs();
  in.weight = zeros_of({kRows, kLists, kChosen + 1});
  EXPECT_ERROR(run(in), ErrorKind::internal, "weight is [2, 3, 3] f32; it must be [2, 3, 2] f32");
  in = inputs();
  in.list = zeros_of({kRows, kQueries + 1}, DType::i32);
  EXPECT_ERROR(run(in), ErrorKind::internal, "list is [2, 10] i32; it must be [2, 9] i32");
  in = inputs();
  in.keys = zeros_of({kChunks, 0, 1, kSize});
  in.values = in.keys;
  EXPECT_ERROR(run(in), ErrorKind::internal, "listed_attention: blocks of 0 keys");
  in = inputs();
  in.keys = zeros_of(in.keys.shape(), DType::f64);
  EXPECT_ERROR(run(in), ErrorKind::internal, "keys in f64 beside queries in f32");
  in = inputs();
  in.keys = zeros_of(in.keys.shape(), DType::bf16);
  in.values = in.keys;
  EXPECT_ERROR(run(in), ErrorKind::internal, "dkeys is [5, 6, 1, 8] bf16; it must be [5, 6, 1, 8] f32");
}

// Earlier calls leave values in the memory that a call works in. A block adds its own sum alone.
TEST_P(ListedAttention, EntriesThatNameNothingGiveNothing) {
  RandomTensors random(2);
  ops::ListedAttentionInputs in;
  in.q = normal(random, {1, 3, 1, kSize});
  in.keys = normal(random, {6, 4, 1, kSize});
  const Tensor values = normal(random, {6, 4, 1, kSize});
  const auto run_on = [&](const Tensor& of_values, const std::vector<int32_t>& blocks) {
    in.values = of_values;
    const int64_t chosen = static_cast<int64_t>(blocks.size()) / 3;
    in.blocks = placed(Tensor::from(blocks, {1, 3, 1, chosen}));
    const auto wide = [&](const Shape& shape) { return Tensor::empty(shape, DType::f32, test_device()); };
    const std::vector<Tensor> to{Tensor::empty_like(in.q), wide({1, 1, 3}), wide({1, 1, 3, chosen})};
    ops::listed_attention(to[0], to[1], to[2], in);
    return to;
  };
  for (const bool landmarks : {false, true}) {
    in.landmarks = landmarks;
    const std::vector<Tensor> expected = run_on(values, {4, 1, 5});
    const Tensor large = Tensor::empty_like(values);
    fill(large, std::numeric_limits<float>::infinity());
    run_on(large, std::vector<int32_t>(15, 2));
    const std::vector<Tensor> got = run_on(values, {-1, 4, -1, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1, 5});
    EXPECT_TRUE(same_bits(got[0], expected[0]));
    const std::vector<double> mass = values_of(got[2]), lse = values_of(expected[1]);
    for (size_t i = 0; i < mass.size(); ++i) {
      const bool names = i == 1 || i == 5 || i == 14;
      const double expected_mass = names ? lse[i / 5] : -std::numeric_limits<double>::infinity();
      EXPECT_TRUE(mass[i] == expected_mass || std::abs(mass[i] - expected_mass) < 1e-5) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ListedAttention, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace quire::test
