// Tests of listed attention beyond the table of op cases: extreme logits, operands that are not read, numbers that name
// nothing, generation, and bad input. They run on the CPU and, with CUDA's kernels on the host or on a GPU, there.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "core/thread_pool.h"
#include "kernels/listed_sizes.h"
#include "tests/kernels/listed_forms.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

using enum ListedStep;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<int32_t> numbers_of(const Tensor& tensor) {
  return tensor.defined() ? on_device(tensor, kCpu).to_vector<int32_t>() : std::vector<int32_t>();
}
Tensor with_numbers(const Tensor& tensor, const std::vector<int32_t>& numbers) {
  return Tensor::from(numbers, tensor.shape()).to(tensor.device());
}

// Returns a tensor with other values where change(index, value) says so.
Tensor changed(const Tensor& tensor, const std::function<double(int64_t, double)>& change) {
  std::vector<double> values = values_of(on_device(tensor, kCpu));
  for (size_t i = 0; i < values.size(); ++i) values[i] = change(static_cast<int64_t>(i), values[i]);
  return converted(Tensor::from(values, tensor.shape()), tensor.dtype()).to(tensor.device());
}
Tensor filled(const Tensor& tensor, double value) {
  return changed(tensor, [=](int64_t, double) { return value; });
}

// Outputs and gradients.
std::vector<Tensor> results_of(const ops::ListedAttentionInputs& in) {
  std::vector<Tensor> results = attend_listed(in);
  const std::vector<Tensor> gradients = listed_gradients(in, results);
  results.insert(results.end(), gradients.begin(), gradients.end());
  return results;
}
bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.defined() == y.defined() && (!x.defined() || same_bits(x, y));
  });
}
bool all_are(const std::vector<Tensor>& tensors, const std::function<bool(double)>& is) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
    const std::vector<double> values = tensor.defined() ? values_of(tensor) : std::vector<double>();
    return std::all_of(values.begin(), values.end(), is);
  });
}

const ListedForm::Queries kTwo{2, 9, 2, 1, 8, 8}, kMany{1, 65, 1, 1, 64, 64}, kOdd{2, 5, 2, 1, 6, 6};
const ListedForm kLists{.name = "lists", .step = weights, .q = kTwo, .blocks = {8, 6}, .lists = {3, 3, 2}};

// In f32, and in bf16 on devices that have it: there on tensor cores.
class ListedAttention : public ::testing::TestWithParam<std::tuple<ListedForm, DType>> {
 protected:
  void SetUp() override {
    const auto& [form, dtype] = GetParam();
    if (dtype == DType::bf16 && test_device() == kCpu) GTEST_SKIP() << "bf16 is for the CUDA device";
    in_ = listed_call(form, dtype, test_device());
  }

  // Says which queries and heads read a block, [R, T, H].
  std::vector<bool> readers_of(int32_t block) const {
    const ListedSizes s(in_);
    const std::vector<int32_t> blocks = numbers_of(in_.blocks), list = numbers_of(in_.list);
    std::vector<bool> reads;
    for (int64_t line = 0; line < s.rows * s.queries * s.heads; ++line) {
      const int64_t cell = line / s.heads, of = list.empty() ? cell % s.queries : list[static_cast<size_t>(cell)];
      const int64_t head = line % s.heads * s.list_heads / s.heads;
      const auto begin = blocks.begin() + ((cell / s.queries * s.lists + of) * s.list_heads + head) * s.chosen;
      reads.push_back(of >= 0 && std::find(begin, begin + s.chosen, block) != begin + s.chosen);
    }
    return reads;
  }

  ops::ListedAttentionInputs in_;
};

// One key is spoiled, then a whole block. Queries whose entries share a tile with it change by no bit.
TEST_P(ListedAttention, NanReachesThoseThatReadItAlone) {
  const std::vector<Tensor> expected = results_of(in_);
  const std::vector<int32_t> blocks = numbers_of(in_.blocks);
  const int32_t block = *std::max_element(blocks.begin(), blocks.end());
  const std::vector<bool> reads = readers_of(block);
  EXPECT_GT(std::count(reads.begin(), reads.end(), true), 0);
  for (const bool whole : {false, true}) {
    ops::ListedAttentionInputs in = in_;
    for (Tensor* stored : {&in.keys, &in.values}) {
      const int64_t of_block = stored->numel() / stored->dim(0), end = whole ? of_block : 1;
      if (!whole && stored == &in.values) continue;
      *stored =
          changed(*stored, [&](int64_t i, double x) { return i / of_block == block && i % of_block < end ? kNan : x; });
    }
    const std::vector<Tensor> got = results_of(in);
    for (const size_t n : {0, 3}) {  // out and dq
      const std::vector<double> is = values_of(got[n]), was = values_of(expected[n]);
      for (size_t i = 0; i < is.size(); ++i) {
        const size_t line = i / static_cast<size_t>(got[n].dim(3));
        if (reads[line] && !whole && in.keys.dim(2) > 1) continue;  // the key is that of some heads
        EXPECT_TRUE(reads[line] ? std::isnan(is[i]) : is[i] == was[i]) << n << " " << i;
      }
    }
  }
}

// Lists begin and end anywhere in a subsequence: its bits do not depend on where.
TEST_P(ListedAttention, QueriesGetAloneWhatTheyGetAmongOthers) {
  const Tensor all = attend_listed(in_)[0].slice(0, 0, 1);
  const int64_t queries = in_.q.dim(1);
  for (const auto& [first, last] : {std::pair{int64_t{0}, int64_t{1}}, std::pair{queries / 2, queries / 2 + 1},
                                    std::pair{queries - 1, queries}, std::pair{queries - 5, queries}}) {
    const auto part = [first = first, last = last](const Tensor& tensor, int axis) {
      return tensor.defined() ? packed(tensor.slice(0, 0, 1).slice(axis, first, last)) : Tensor();
    };
    const auto row = [](const Tensor& tensor) { return tensor.defined() ? tensor.slice(0, 0, 1) : Tensor(); };
    ops::ListedAttentionInputs few = in_;
    const bool by_query = !in_.list.defined();
    // A query alone does not run on tensor cores, which other queries do without weights.
    if (last - first == 1 && in_.q.dtype() == DType::bf16 && !in_.weight.defined()) continue;
    few.q = part(in_.q, 1), few.list = part(in_.list, 1);
    few.blocks = by_query ? part(in_.blocks, 1) : row(in_.blocks);
    few.rotation = by_query ? part(in_.rotation, 1) : row(in_.rotation);
    few.weight = by_query ? part(in_.weight, 2) : row(in_.weight);
    few.own_keys = row(in_.own_keys), few.own_values = row(in_.own_values);
    EXPECT_TRUE(same_bits(attend_listed(few)[0], packed(all.slice(1, first, last)))) << first << " " << last;
  }
}

TEST_P(ListedAttention, AGradientDoesNotDependOnWhichOthersAreAskedFor) {
  const std::vector<Tensor> outputs = attend_listed(in_), all = listed_gradients(in_, outputs);
  for (size_t n = 0; n < all.size(); ++n) {
    EXPECT_TRUE(same({listed_gradients(in_, outputs, {n})[n]}, {all[n]})) << n;
  }
}

TEST_P(ListedAttention, NumbersThatNameNothing) {
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min(), kMax = std::numeric_limits<int32_t>::max();
  const bool on_cpu = test_device() == kCpu;
  const std::vector<int32_t> nothing = on_cpu ? std::vector<int32_t>{8} : std::vector<int32_t>{8, kMin, -70000, kMax};
  const auto with = [&](const Tensor& tensor, size_t step, const std::vector<int32_t>& others) {
    std::vector<int32_t> numbers = numbers_of(tensor);
    for (size_t i = 0; i < numbers.size(); i += step) numbers[i] = others[i / step % others.size()];
    return with_numbers(tensor, numbers);
  };
  ops::ListedAttentionInputs wild = in_;
  wild.blocks = with(in_.blocks, 3, nothing);
  if (on_cpu) {
    EXPECT_ERROR(results_of(wild), ErrorKind::internal, "listed_attention: block 8 of");
    if (!in_.list.defined()) return;
    in_.list = with(in_.list, 1, {3});
    EXPECT_ERROR(results_of(in_), ErrorKind::internal, "listed_attention: list 3 of");
    return;
  }
  // The host does not check these numbers, which name nothing.
  in_.blocks = with(in_.blocks, 3, {-1});
  if (in_.table.defined()) in_.rotation = wild.rotation = with(in_.rotation, 4, nothing);
  EXPECT_TRUE(same(results_of(wild), results_of(in_)));
  if (!in_.list.defined()) return;
  wild.list = with(in_.list, 2, {3, kMax});
  in_.list = with(in_.list, 2, {-1});
  EXPECT_TRUE(same(results_of(wild), results_of(in_)));
}

// Earlier calls leave values in the memory that a call works in. The masses of blocks are what adds up to the sum.
TEST_P(ListedAttention, EntriesThatNameNothingAddNothing) {
  if (in_.weight.defined()) GTEST_SKIP() << "about masses";
  const std::vector<Tensor> expected = attend_listed(in_);
  const auto spread = [](const Tensor& tensor, int32_t none) {
    std::vector<int32_t> numbers;
    for (const int32_t number : numbers_of(tensor)) numbers.insert(numbers.end(), {none, number, none});
    const Shape& shape = tensor.shape();
    return Tensor::from(numbers, {shape[0], shape[1], shape[2], 3 * shape[3]}).to(tensor.device());
  };
  ops::ListedAttentionInputs in = in_;
  in.blocks = spread(in_.blocks, -1), in.rotation = spread(in_.rotation, 0);
  ops::ListedAttentionInputs large = in;
  large.values = filled(in.values, kInfinity);
  attend_listed(large);
  const std::vector<Tensor> got = attend_listed(in);
  EXPECT_TRUE(same({got[0], got[1]}, {expected[0], expected[1]}));
  const std::vector<double> mass = values_of(got[2]), few = values_of(expected[2]), lse = values_of(expected[1]);
  for (size_t i = 0; i < mass.size(); ++i) EXPECT_EQ(mass[i], i % 3 == 1 ? few[i / 3] : -kInfinity);
  const size_t chosen = few.size() / lse.size();
  for (size_t i = 0; i < lse.size(); ++i) {
    double sum = 0;
    for (size_t n = 0; n < chosen; ++n) sum += std::exp(few[i * chosen + n]);
    EXPECT_NEAR(sum, std::exp(lse[i]), 1e-3 * sum);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ListedAttention,
    ::testing::Combine(
        ::testing::Values(
            kLists, ListedForm{.name = "one", .step = weights_one, .q = kTwo, .blocks = {8, 6}, .lists = {3, 3, 2}},
            ListedForm{.name = "a_chunk", .step = weights, .q = kMany, .blocks = {2, 64}, .lists = {1, 65}},
            ListedForm{.name = "a_chunk_one", .step = weights_one, .q = kMany, .blocks = {2, 64}, .lists = {1, 65}},
            ListedForm{.name = "queries", .step = weights, .q = {2, 9, 4, 2, 8, 8}, .blocks = {8, 4, 2, 2}, .width = 3},
            ListedForm{
                .name = "softmax", .step = softmax, .q = {2, 20, 2, 1, 16, 8}, .blocks = {8, 4, 2, 2}, .pairs = 3},
            ListedForm{.name = "landmarks", .q = {2, 20, 2, 1, 16, 8}, .blocks = {8, 4}, .pairs = 3},
            ListedForm{.name = "odd", .step = softmax, .q = kOdd, .blocks = {8, 3}, .pairs = 2},
            ListedForm{.name = "odd_landmarks", .q = kOdd, .blocks = {8, 3}, .pairs = 2}),
        ::testing::Values(DType::f32, DType::bf16)),
    [](const auto& tested) {
      return std::get<0>(tested.param).name + "_" + std::string(name_of(std::get<1>(tested.param)));
    });

// Weights of lists, whose softmax within a block has a zero more or not.
class ListedLogits : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (GetParam() == DType::bf16 && test_device() == kCpu) GTEST_SKIP() << "bf16 is for the CUDA device";
    in_ = listed_call(kLists, GetParam(), test_device());
    in_.scale = 1;
    in_.q = filled(in_.q, 1);
  }
  ops::ListedAttentionInputs in_;
};

TEST_P(ListedLogits, VeryLowOnesGetNothingBesideOne) {
  in_.keys = filled(in_.keys, -10000);
  const std::vector<Tensor> plain = results_of(in_);
  in_.softmax_one = true;
  EXPECT_TRUE(all_are(results_of(in_), [](double x) { return x == 0; }));
  EXPECT_TRUE(all_are(plain, [](double x) { return std::isfinite(x); }));
  EXPECT_FALSE(all_are({plain[0]}, [](double x) { return x == 0; }));  // a plain softmax divides by what there is
}

TEST_P(ListedLogits, VeryHighOnesLeaveNothingToOne) {
  const int64_t length = in_.keys.dim(1), size = in_.keys.dim(3);
  in_.keys = changed(in_.keys, [&](int64_t i, double) { return i / size % length == 3 ? 8192 : -8192; });
  const std::vector<Tensor> plain = results_of(in_);
  in_.softmax_one = true;
  EXPECT_TRUE(same(results_of(in_), plain) && all_are(plain, [](double x) { return std::isfinite(x); }));
  const std::vector<double> lse = values_of(plain[1]);
  EXPECT_EQ(*std::max_element(lse.begin(), lse.end()), 8192.0 * static_cast<double>(size));
}

TEST_P(ListedLogits, AtMinusInfinityGetNothing) {
  const int64_t of_key = in_.keys.dim(3), of_block = in_.keys.dim(1) * of_key;
  // All of block 1, and one key of block 2.
  const auto is_low = [=](size_t i) {
    const auto at = static_cast<int64_t>(i);
    return at / of_block == 1 || at / of_key * of_key == 2 * of_block;
  };
  in_.keys = changed(in_.keys, [&](int64_t i, double) { return is_low(static_cast<size_t>(i)) ? -kInfinity : 0.0; });
  const std::vector<Tensor> outputs = attend_listed(in_), got = listed_gradients(in_, outputs, {2, 3});
  EXPECT_TRUE(all_are({outputs[0], got[2], got[3]}, [](double x) { return std::isfinite(x); }));
  const std::vector<double> dvalues = values_of(got[2]), lse = values_of(outputs[1]);
  for (size_t i = 0; i < dvalues.size(); ++i) EXPECT_TRUE(dvalues[i] == 0 || !is_low(i)) << i;
  EXPECT_NE(std::find(lse.begin(), lse.end(), -kInfinity), lse.end());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ListedLogits, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// Rows that read the same chunk add to its gradients one after the other, on any number of threads.
TEST(ListedRows, ThatShareChunksAddInTheirOrder) {
  if (test_device() != kCpu) GTEST_SKIP() << "about threads of the CPU";
  const ops::ListedAttentionInputs in =
      listed_call({.name = "rows", .step = weights, .q = {8, 64, 1, 1, 64, 64}, .blocks = {2, 64}, .lists = {1, 64}},
                  DType::f32, kCpu);
  const auto run_on = [&](int threads) {
    ThreadPool pool(threads);
    const ThreadPool::Use use(pool);
    return results_of(in);
  };
  const std::vector<Tensor> expected = run_on(1);
  for (int repeat = 0; repeat < 60; ++repeat) EXPECT_TRUE(same(run_on(4), expected));
}

TEST(ListedOperands, ThatDoNotFit) {
  using In = ops::ListedAttentionInputs;
  const In whole = listed_call(kLists, DType::f32, test_device());
  const auto f32 = [](const Shape& shape) { return zeros(shape, DType::f32); };
  struct Wrong {
    Tensor In::*operand;
    Tensor value;
    const char* message;
  };
  const Wrong wrongs[] = {{&In::keys, f32({8, 6, 3, 8}), "2 query heads are no multiple of 3 key heads"},
                          {&In::keys, f32({8, 6, 8}), "listed_attention: keys has 3 axes; it must have 4"},
                          {&In::values, f32({8, 7, 1, 8}), "values is [8, 7, 1, 8] f32; it must be [8, 6, 1, 8] f32"},
                          {&In::weight, f32({2, 3, 3}), "weight is [2, 3, 3] f32; it must be [2, 3, 2] f32"},
                          {&In::list, zeros({2, 10}, DType::i32), "list is [2, 10] i32; it must be [2, 9] i32"}};
  for (const Wrong& wrong : wrongs) {
    In in = whole;
    in.*wrong.operand = wrong.value;
    EXPECT_ERROR(attend_listed(in), ErrorKind::internal, wrong.message);
  }
  const auto stored = [&](const Tensor& lines, const Shape& scales = {}) {
    In in = whole;
    in.keys = in.values = lines;
    if (scales.rank() > 0) in.key_scale = in.value_scale = zeros(scales, DType::bf16);
    return in;
  };
  const auto lines = [](DType type) { return zeros({8, 6, 1, 8}, type); };
  In empty = stored(f32({8, 0, 1, 8}));
  empty.length = 0;
  for (const auto& [in, message] : std::vector<std::pair<In, const char*>>{
           {empty, "blocks of 0 keys"},
           {stored(lines(DType::f64)), "listed_attention: keys in f64 beside queries in f32"},
           {stored(lines(DType::i8)), "keys and values in i8 need scales"},
           {stored(lines(DType::bf16), {8, 6, 1}), "keys and values in bf16 have no scales"},
           {stored(lines(DType::f8), {8, 6}), "key_scale is [8, 6] bf16; it must be [8, 6, 1] bf16"}}) {
    EXPECT_ERROR(attend_listed(in), ErrorKind::internal, message);
  }
  const In in = stored(lines(DType::i8), {8, 6, 1});
  if (test_device() != kCpu) {
    EXPECT_ERROR(attend_listed(in), ErrorKind::internal, "on a GPU keys and values in i8 must be dequantized before");
    return;
  }
  const std::vector<Tensor> outputs = attend_listed(in);
  EXPECT_ERROR(ops::listed_attention_backward({{}, f32({8, 6, 1, 8}), {}, {}}, outputs[0], {}, {}, outputs[1], in),
               ErrorKind::internal, "keys and values in i8 beside queries in f32 are constant");
}

}  // namespace
}  // namespace quire::test
