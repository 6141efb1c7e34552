// Attention to values of more than 128 features as products of matrices, on the host: how it is cut up, and what the
// table of op cases does not say about it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "kernels/attention_slabs.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"

namespace quire::test {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

class WithLimits {
 public:
  explicit WithLimits(const AttentionSlabLimits& limits) { AttentionSlabs::limits = limits; }
  ~WithLimits() { AttentionSlabs::limits = {}; }
  WithLimits(const WithLimits&) = delete;
  WithLimits& operator=(const WithLimits&) = delete;
};

struct Cut {
  int64_t rows, queries, slots;
  std::optional<ops::AttentionReach> reach;
  bool both_ways = false;
};

ops::AttentionInputs sizes_of(const Cut& cut) {
  ops::AttentionInputs in;
  in.q = Tensor::empty({cut.rows, cut.queries, 1, 8}, DType::bf16, kMeta);
  in.k = in.q;
  in.v = Tensor::empty({cut.rows, cut.queries, 1, 256}, DType::bf16, kMeta);
  in.first_visible = Tensor::empty({cut.rows, cut.queries}, DType::i32, kMeta);
  if (cut.both_ways) in.last_visible = in.first_visible;
  if (cut.slots > 0) {
    in.cache_k = Tensor::empty({cut.rows, cut.slots, 1, 8}, DType::bf16, kMeta);
    in.cache_v = Tensor::empty({cut.rows, cut.slots, 1, 256}, DType::bf16, kMeta);
    in.cache_head = Tensor::empty({cut.rows}, DType::i32, kMeta);
  }
  in.reach = cut.reach;
  return in;
}

// Pairs of a row, a slab of queries and a slab of keys, and how often a product has them.
using Pairs = std::map<std::array<int64_t, 3>, int>;

void expect_cut(const Cut& cut) {
  const ops::AttentionInputs in = sizes_of(cut);
  const AttentionSlabs slabs(AttentionSizes(in), in);
  Pairs by_queries;
  Pairs by_keys;
  std::set<std::pair<int64_t, int64_t>> queries;  // row and slab
  for (const AttentionSlabs::Group& group : slabs.groups()) {
    for (const AttentionSlabs::Piece& piece : slabs.pieces_of_queries(group)) {
      EXPECT_TRUE(piece.rows == 1 || piece.slabs == 1);
      for (int64_t n = 0; n < piece.at_once(); ++n) {
        const int64_t row = piece.row + (piece.slabs == 1 ? n : 0);
        const int64_t slab = piece.slab + (piece.slabs == 1 ? 0 : n);
        EXPECT_TRUE(slab >= group.begin && slab < group.end);
        EXPECT_TRUE(queries.insert({row, slab}).second);
        EXPECT_EQ(slabs.size_of(slab, slab + 1), slabs.size_of(piece.slab, piece.slab + 1));
        EXPECT_EQ(slabs.keys_of(slab), slabs.keys_of(piece.slab));
        EXPECT_EQ(slabs.terms_of(slab), slabs.terms_of(piece.slab));
        EXPECT_LE(piece.at_once() * slabs.size_of(slab, slab + 1), slabs.most_lines());
        for (int64_t key = slabs.first(slab); key < slabs.end(slab); ++key) ++by_queries[{row, slab, key}];
      }
    }
    // What a group stores of a row: places of corners tell that no two slabs share any.
    std::map<int64_t, std::pair<int64_t, int64_t>> places;
    for (int64_t q = group.begin * slabs.length; q < group.begin * slabs.length + slabs.size_of(group.begin, group.end);
         ++q) {
      const int64_t slab = q / slabs.length;
      const int64_t begin = (q - group.begin * slabs.length) * slabs.width +
                            (slabs.first(slab) - slabs.first(group.begin)) * slabs.length;
      places[begin] = {begin + slabs.keys_of(slab), q};
      EXPECT_LE(begin + slabs.keys_of(slab), slabs.stored_pairs(group));
    }
    int64_t behind = 0;
    for (const auto& [begin, end] : places) {
      EXPECT_GE(begin, behind) << "query " << end.second;
      behind = end.first;
    }
    for (const AttentionSlabs::Piece& piece : slabs.pieces_of_keys(group)) {
      for (int64_t n = 0; n < piece.at_once(); ++n) {
        const int64_t row = piece.row + (piece.slabs == 1 ? n : 0);
        const int64_t ahead = piece.slabs == 1 ? 0 : n;
        EXPECT_EQ(slabs.size_of(piece.begin + ahead, piece.end + ahead), slabs.size_of(piece.begin, piece.end));
        for (int64_t slab = piece.begin + ahead; slab < piece.end + ahead; ++slab) {
          ++by_keys[{row, slab, piece.slab + ahead}];
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(queries.size()), cut.rows * slabs.count);
  EXPECT_EQ(by_queries, by_keys);
  for (const auto& [pair, times] : by_queries) EXPECT_EQ(times, 1) << pair[1] << " " << pair[2];
  // What each query may see lies in its slab's products.
  for (int64_t q = 0; q < cut.queries; ++q) {
    const int64_t low = cut.reach ? q / cut.reach->block * cut.reach->block - cut.reach->before : -cut.slots;
    const int64_t slab = q / slabs.length;
    EXPECT_LE(slabs.first(slab) * slabs.length, std::max<int64_t>(low, 0)) << q;
    EXPECT_TRUE(low >= 0 || cut.slots == 0 || slab < slabs.ringed) << q;
    const int64_t last = cut.both_ways ? cut.queries - 1 : q;
    EXPECT_GE(slabs.first(slab) * slabs.length + slabs.keys_of(slab), last + 1);
  }
}

TEST(AttentionSlabs, EveryPairIsInOneProductOfEachKind) {
  using Reach = ops::AttentionReach;
  const Cut cuts[] = {{1, 1, 0, {}},
                      {1, 5000, 0, {}},
                      {3, 5000, 70, {}},
                      {20, 700, 0, {}},
                      {1, 9000, 512, Reach{512, 512}},
                      {8, 2048, 512, Reach{512, 512}},
                      {32, 2100, 300, Reach{100, 300}},
                      {2, 3000, 0, Reach{1, 0}},
                      {1, 5000, 40, Reach{1, 1000}},
                      {4, 3001, 3000, Reach{1, 700}},
                      {2, 3000, 9, {}, true}};
  for (const Cut& cut : cuts) {
    SCOPED_TRACE(testing::Message() << cut.rows << " rows of " << cut.queries);
    expect_cut(cut);
    const WithLimits few({.pairs = 1000000});
    expect_cut(cut);
  }
}

// Transformer-VQ: a block sees itself and the one before, which is 1024 keys and no more.
TEST(AttentionSlabs, ABlockIsMultipliedByItselfAndTheOneBefore) {
  const ops::AttentionInputs in = sizes_of({8, 2048, 512, ops::AttentionReach{512, 512}});
  const AttentionSlabs slabs(AttentionSizes(in), in);
  EXPECT_EQ(slabs.length, 512);
  EXPECT_EQ(slabs.width, 1024);
  EXPECT_EQ(slabs.ringed, 1);
  EXPECT_EQ(slabs.keys_of(0), 512);
  EXPECT_EQ(slabs.keys_of(3), 1024);
}

struct Results {
  Tensor out, lse;
  ops::AttentionGradients gradients;
};

std::vector<Tensor> listed(const Results& r) {
  const ops::AttentionGradients& g = r.gradients;
  return {r.out, r.lse, g.dq, g.dk, g.dv, g.dcache_k, g.dcache_v, g.dbias, g.dr, g.du, g.dv_bias};
}

ops::AttentionInputs on_gpu(ops::AttentionInputs in) {
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.r}) {
    if (t->defined()) *t = on_device(converted(*t, DType::bf16), kCuda);
  }
  for (Tensor* t : {&in.cache_head, &in.first_visible, &in.bias, &in.u, &in.v_bias}) {
    if (t->defined()) *t = on_device(converted(*t, DType::f32), kCuda);
  }
  return in;
}

Results run(const ops::AttentionInputs& in) {
  const auto like = [](const Tensor& tensor) { return tensor.defined() ? Tensor::empty_like(tensor) : Tensor(); };
  Results r;
  r.out = Tensor::empty({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)}, DType::bf16, kCuda);
  r.lse = Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, DType::f32, kCuda);
  ops::attention(r.out, r.lse, in);
  r.gradients = {like(in.q),    like(in.k), like(in.v), like(in.cache_k), like(in.cache_v),
                 like(in.bias), like(in.r), like(in.u), like(in.v_bias)};
  const Tensor dout = on_device(RandomTensors(7).normal(r.out.shape(), 1, 0, DType::bf16), kCuda);
  ops::attention_backward(r.gradients, dout, r.out, r.lse, in);
  return r;
}

void expect_close(const Results& got, const Results& wanted, double tolerance) {
  for (size_t i = 0; i < listed(got).size(); ++i) {
    if (!listed(got)[i].defined()) continue;
    const std::vector<double> found = values_of(listed(got)[i]);
    const std::vector<double> expected = values_of(listed(wanted)[i]);
    double largest = 0;
    for (const double value : expected) largest = std::isinf(value) ? largest : std::max(largest, std::abs(value));
    for (size_t n = 0; n < found.size(); ++n) {
      if (found[n] == expected[n]) continue;
      ASSERT_NEAR(found[n], expected[n], tolerance * largest) << "tensor " << i << " at " << n;
    }
  }
}

const AttentionForm kForm{.rows = 2,
                          .queries = 200,
                          .heads = 1,
                          .kv_heads = 1,
                          .size = 8,
                          .value_size = 136,
                          .slots = 30,
                          .relative = true,
                          .scale = 0.2};

// Many small slabs in products of rows and of slabs, pairs all at once and slab by slab: the same as one slab, which
// the table of op cases compares with the reference.
TEST(WideValues, SlabsAddUpToOneSlab) {
  const AttentionForm forms[] = {
      kForm,
      {.rows = 1, .queries = 300, .heads = 2, .kv_heads = 1, .size = 8, .value_size = 136, .bias = true, .scale = 0.2},
      {.rows = 1,
       .queries = 300,
       .heads = 1,
       .kv_heads = 1,
       .size = 8,
       .value_size = 136,
       .slots = 20,
       .window = 40,
       .bias = true,
       .dropout = 0.3,
       .scale = 0.2},
      {.rows = 2,
       .queries = 300,
       .heads = 1,
       .kv_heads = 1,
       .size = 5,
       .value_size = 131,
       .slots = 64,
       .window = 64,
       .block = 64,
       .relative = true,
       .spare_entries = -63,
       .scale = 0.2},
      {.rows = 5,
       .queries = 150,
       .heads = 1,
       .kv_heads = 1,
       .size = 8,
       .value_size = 136,
       .slots = 9,
       .documents = true,
       .relative = true,
       .scale = 0.2}};
  for (const AttentionForm& form : forms) {
    const ops::AttentionInputs in = on_gpu(attention_inputs(form, 3));
    SCOPED_TRACE(testing::Message() << form.rows << " rows, heads " << form.heads << ", block " << form.block);
    const Results wanted = run(in);
    for (const int64_t pairs : {int64_t{1} << 29, int64_t{1}}) {
      const WithLimits small({.fewest_queries = 32, .lines = 64, .pairs = pairs});
      EXPECT_GT(AttentionSlabs(AttentionSizes(in), in).count, 2);
      expect_close(run(in), wanted, 0.01);
    }
  }
}

TEST(WideValues, FewerProductsWhereTheReachIsKnown) {
  AttentionForm form = kForm;
  form.relative = false;
  form.window = 40;
  ops::AttentionInputs in = on_gpu(attention_inputs(form, 3));
  ASSERT_TRUE(in.reach.has_value());
  const WithLimits small({.fewest_queries = 32, .lines = 64});
  EXPECT_EQ(AttentionSlabs(AttentionSizes(in), in).width, 96);
  const Results got = run(in);
  in.reach.reset();
  EXPECT_GT(AttentionSlabs(AttentionSizes(in), in).width, 190);
  expect_close(got, run(in), 0.01);
}

TEST(WideValues, TheyTakeNoTensorCoresOfOurOwn) {
  const ops::AttentionInputs in = on_gpu(attention_inputs(kForm, 3));
  const int64_t before = shim::tensor_products();
  run(in);
  EXPECT_EQ(shim::tensor_products(), before);
}

TEST(WideValues, SlotsThatNobodySeesMayHoldAnything) {
  AttentionForm form = kForm;
  form.rows = 1;
  form.queries = 70;
  ops::AttentionInputs in = attention_inputs(form, 4);
  for (int64_t i = 0; i < form.queries; ++i) {
    int32_t& first = in.first_visible.data<int32_t>()[i];
    first = std::max(first, -7);
  }
  const Results wanted = run(on_gpu(in));
  const int64_t head = in.cache_head.data<int32_t>()[0];
  for (const Tensor& ring : {in.cache_k, in.cache_v}) {
    const int64_t width = ring.dim(3);
    for (int64_t n = 8; n <= form.slots; ++n) {
      const int64_t slot = (head - n + form.slots) % form.slots;
      std::fill_n(ring.data<double>() + slot * width, width, std::numeric_limits<double>::quiet_NaN());
    }
  }
  const Results got = run(on_gpu(in));
  for (size_t i = 0; i < listed(got).size(); ++i) {
    if (!listed(got)[i].defined()) continue;
    EXPECT_TRUE(same_bits(listed(got)[i], listed(wanted)[i])) << i;
  }
}

}  // namespace
}  // namespace quire::test
