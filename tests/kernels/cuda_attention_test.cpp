// Tests of attention on the CUDA device beyond the table of op cases; there the host does not read first_visible.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"

namespace quire::test {
namespace {

struct Kind {
  DType type;
  int64_t size, value_size;
  const char* name;
};

// In f32, and on tensor cores: in bf16 with heads in whole chunks of 8 features, and with values of more than 128.
class CudaAttention : public CudaTestWithParam<Kind> {
 protected:
  static ops::AttentionInputs inputs(AttentionForm form, uint32_t seed) {
    form.size = GetParam().size;
    form.value_size = GetParam().value_size;
    return attention_inputs(form, seed);
  }
  // The same call on the device.
  static ops::AttentionInputs moved(ops::AttentionInputs in) {
    for (Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.r}) {
      *t = on_device(converted(*t, GetParam().type), kCuda);
    }
    for (Tensor* t : {&in.cache_head, &in.first_visible, &in.bias, &in.u, &in.v_bias}) {
      *t = on_device(converted(*t, DType::f32), kCuda);
    }
    return in;
  }
};

struct Results {
  Tensor out, lse;
  ops::AttentionGradients gradients;
};

std::vector<Tensor> listed(const ops::AttentionGradients& g) {
  return {g.dq, g.dk, g.dv, g.dcache_k, g.dcache_v, g.dbias, g.dr, g.du, g.dv_bias};
}

Tensor output_gradient(const Tensor& out) {
  return on_device(RandomTensors(7).normal(out.shape(), 1, 0, out.dtype()), kCuda);
}

Results run(const ops::AttentionInputs& in) {
  Results results;
  results.out = Tensor::empty({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)}, in.q.dtype(), kCuda);
  results.lse = Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, DType::f32, kCuda);
  ops::attention(results.out, results.lse, in);
  results.gradients = gradients_like(in);
  ops::attention_backward(results.gradients, output_gradient(results.out), results.out, results.lse, in);
  return results;
}

TEST_P(CudaAttention, WhatLiesOutsideRingAndTableIsNotVisible) {
  const AttentionForm form{.queries = 70, .slots = 5, .bias = true, .relative = true};
  ops::AttentionInputs in = inputs(form, 11);
  const int64_t entries = 40;  // fewer than there are distances
  in.bias = packed(in.bias.slice(1, 0, entries));
  in.r = in.r.slice(0, 0, entries);
  std::vector<int32_t> wild;
  std::vector<int32_t> tame;
  const std::vector<int32_t> values{std::numeric_limits<int32_t>::min(), -1000000, -6, -5, 3,
                                    std::numeric_limits<int32_t>::max()};
  for (int64_t i = 0; i < form.rows * form.queries; ++i) {
    const auto query = static_cast<int32_t>(i % form.queries);
    wild.push_back(values[static_cast<size_t>(i) % values.size()]);
    tame.push_back(std::clamp(wild.back(), std::max(-5, query - static_cast<int32_t>(entries) + 1), 71));
  }
  in.first_visible = Tensor::from(tame, {form.rows, form.queries});
  in.cache_head = Tensor::from(std::vector<int32_t>{2, 4}, {2});
  const Results expected = run(moved(in));
  in.first_visible = Tensor::from(wild, {form.rows, form.queries});
  in.cache_head = Tensor::from(std::vector<int32_t>{2 + 50000, 4 - 50000}, {2});
  const Results got = run(moved(in));
  EXPECT_TRUE(same_bits(got.out, expected.out));
  EXPECT_TRUE(same_bits(got.lse, expected.lse));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(same_bits(listed(got.gradients)[i], listed(expected.gradients)[i])) << "gradient " << i;
  }
}

TEST_P(CudaAttention, WhereDeltaIsGivenOutIsNotRead) {
  const ops::AttentionInputs in = moved(inputs({.queries = 70, .slots = 5, .bias = true, .relative = true}, 12));
  const Results expected = run(in);
  const Tensor dout = output_gradient(expected.out);
  ops::AttentionGradients found = gradients_like(in);
  found.delta = Tensor::empty_like(expected.lse);
  ops::attention_delta(found.delta, dout, expected.out);
  const std::vector<double> nans(static_cast<size_t>(dout.numel()), std::numeric_limits<double>::quiet_NaN());
  const Tensor nothing = on_device(converted(Tensor::from(nans, dout.shape()), dout.dtype()), kCuda);
  ops::attention_backward(found, dout, nothing, expected.lse, in);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(same_bits(listed(found)[i], listed(expected.gradients)[i])) << "gradient " << i;
  }
}

TEST_P(CudaAttention, NanReachesEveryQueryThatSeesItAndNoOther) {
  const AttentionForm form{.rows = 1, .queries = 70, .slots = 5, .window = 30};
  ops::AttentionInputs in = inputs(form, 3);
  const int64_t key = 35;
  const int64_t width = in.k.dim(2) * in.k.dim(3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t n = 0; n < width; ++n) in.k.data<double>()[key * width + n] = nan;
  // Slots that were never written, in front of what anyone sees.
  for (int64_t i = 0; i < form.queries; ++i) {
    int32_t& first = in.first_visible.data<int32_t>()[i];
    first = std::max(first, 0);
  }
  for (const Tensor& ring : {in.cache_k, in.cache_v}) {
    std::fill(ring.data<double>(), ring.data<double>() + ring.numel(), nan);
  }
  const Results results = run(moved(in));
  const std::vector<double> out = values_of(results.out);
  const std::vector<double> lse = values_of(results.lse);
  const std::vector<double> dq = values_of(results.gradients.dq);
  for (int64_t query = 0; query < form.queries; ++query) {
    const bool sees = query >= key && in.first_visible.data<int32_t>()[query] <= key;
    for (int64_t n = 0; n < in.q.dim(2) * in.v.dim(3); ++n) {
      EXPECT_EQ(std::isnan(out[static_cast<size_t>(query * in.q.dim(2) * in.v.dim(3) + n)]), sees) << query;
    }
    for (int64_t n = 0; n < in.q.dim(2) * in.q.dim(3) && sees; ++n) {
      EXPECT_TRUE(std::isnan(dq[static_cast<size_t>(query * in.q.dim(2) * in.q.dim(3) + n)])) << query;
    }
    for (int64_t h = 0; h < form.heads; ++h) {
      EXPECT_EQ(std::isnan(lse[static_cast<size_t>(h * form.queries + query)]), sees) << query;
    }
  }
  for (const Tensor& d : {results.gradients.dcache_k, results.gradients.dcache_v}) {
    for (const double value : values_of(d)) EXPECT_EQ(value, 0.0);
  }
}

TEST_P(CudaAttention, AGradientDoesNotDependOnWhichOthersAreAskedFor) {
  const AttentionForm form{.queries = 67, .heads = 4, .kv_heads = 2, .slots = 6, .bias = true, .relative = true};
  const ops::AttentionInputs in = moved(inputs(form, 5));
  const Results all = run(in);
  const Tensor dout = output_gradient(all.out);
  const std::vector<Tensor> expected = listed(all.gradients);
  for (size_t i = 0; i < expected.size(); ++i) {
    ops::AttentionGradients one;
    Tensor* const members[] = {&one.dq,    &one.dk, &one.dv, &one.dcache_k, &one.dcache_v,
                               &one.dbias, &one.dr, &one.du, &one.dv_bias};
    *members[i] = Tensor::empty_like(expected[i]);
    ops::attention_backward(one, dout, all.out, all.lse, in);
    EXPECT_TRUE(same_bits(*members[i], expected[i])) << "gradient " << i;
  }
}

TEST_P(CudaAttention, NoQueriesGiveZeroGradients) {
  const AttentionForm form{.queries = 0, .slots = 3, .bias = true, .relative = true};
  const Results results = run(moved(inputs(form, 6)));
  for (const Tensor& gradient : listed(results.gradients)) {
    for (const double value : values_of(gradient)) EXPECT_EQ(value, 0.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaAttention,
                         ::testing::Values(Kind{DType::f32, 3, 3, "f32"}, Kind{DType::bf16, 16, 16, "bf16"},
                                           Kind{DType::bf16, 16, 136, "bf16_wide_values"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace quire::test
