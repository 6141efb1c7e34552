// Tests of attention beyond the table of op cases.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

Tensor output_of(const ops::AttentionInputs& in) {
  const Tensor out = Tensor::zeros({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)}, in.q.dtype());
  const Tensor lse = Tensor::zeros({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, in.q.dtype());
  ops::attention(out, lse, in);
  return out;
}

TEST(Attention, PaddingQueriesGiveExactZero) {
  const AttentionForm form{.queries = 70, .slots = 5, .documents = true, .bias = true};
  const ops::AttentionInputs in = attention_inputs(form, 1);
  const Tensor out = output_of(in);
  const int64_t width = out.dim(2) * out.dim(3);
  int64_t padded = 0;
  for (int64_t i = 0; i < form.rows * form.queries; ++i) {
    if (in.first_visible.data<int32_t>()[i] <= form.queries) continue;
    ++padded;
    for (int64_t n = 0; n < width; ++n) EXPECT_EQ(out.data<double>()[i * width + n], 0.0);
  }
  EXPECT_GE(padded, form.rows);
}

TEST(Attention, WhereDeltaIsGivenOutIsNotRead) {
  const AttentionForm form{.queries = 70, .slots = 5, .documents = true};
  const ops::AttentionInputs in = attention_inputs(form, 4);
  const Tensor out = Tensor::zeros({form.rows, form.queries, form.heads, form.value_size}, DType::f64);
  const Tensor lse = Tensor::zeros({form.rows, form.heads, form.queries}, DType::f64);
  ops::attention(out, lse, in);
  const Tensor dout = RandomTensors(5).normal(out.shape());
  ops::AttentionGradients expected;
  ops::AttentionGradients found;
  for (ops::AttentionGradients* g : {&expected, &found}) {
    g->dq = Tensor::empty_like(in.q);
    g->dk = Tensor::empty_like(in.k);
  }
  ops::attention_backward(expected, dout, out, lse, in);
  found.delta = Tensor::empty_like(lse);
  ops::attention_delta(found.delta, dout, out);
  std::fill_n(out.data<double>(), out.numel(), std::numeric_limits<double>::quiet_NaN());
  ops::attention_backward(found, dout, out, lse, in);
  EXPECT_LT(relative_error(found.dq, expected.dq), 1e-14);
  EXPECT_LT(relative_error(found.dk, expected.dk), 1e-14);
}

// A value that is not finite must reach the loss, or nothing would stop the run.
TEST(Attention, NanReachesEveryQueryThatSeesIt) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const AttentionForm form{.rows = 1, .queries = 70, .heads = 2, .kv_heads = 2, .slots = 5};
    ops::AttentionInputs in = attention_inputs(form, 3);
    const int64_t key = 65;
    for (int64_t n = 0; n < form.kv_heads * form.size; ++n) {
      in.k.data<double>()[key * form.kv_heads * form.size + n] = std::numeric_limits<double>::quiet_NaN();
    }
    for (Tensor* t : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v}) *t = converted(*t, dtype);
    const Tensor out = converted(output_of(in), DType::f64);
    const int64_t width = form.heads * form.value_size;
    for (int64_t i = 0; i < out.numel(); ++i) {
      const int64_t query = i / width;
      const bool sees = query >= key && in.first_visible.data<int32_t>()[query] <= key;
      EXPECT_EQ(std::isnan(out.data<double>()[i]), sees) << name_of(dtype) << " query " << query;
    }
  }
}

TEST(Attention, KeysOutsideTheVisibleRangeChangeNothing) {
  const AttentionForm form{.queries = 66, .slots = 40, .window = 5, .bias = true};
  ops::AttentionInputs in = attention_inputs(form, 2);
  for (int64_t i = 0; i < form.rows * form.queries; ++i) {
    int32_t& first = in.first_visible.data<int32_t>()[i];
    first = std::max(first, static_cast<int32_t>(i % form.queries) - 4);
    if (i % form.queries >= 20) first = std::max(first, 20);  // another document begins at 20
  }
  const Tensor before = clone(output_of(in));
  for (int64_t i = 0; i < in.k.numel(); ++i) {
    const int64_t token = i / (form.kv_heads * form.size) % form.queries;
    if (token < 20) in.k.data<double>()[i] += 100;
  }
  const Tensor after = output_of(in);
  const int64_t width = form.heads * form.value_size;
  for (int64_t i = 0; i < before.numel(); ++i) {
    if (i / width % form.queries < 20) continue;
    EXPECT_EQ(before.data<double>()[i], after.data<double>()[i]);
  }
}

// The position of a ring's head is where the data lies, not what it means.
TEST(Attention, TheHeadOfARingMayBeAnywhere) {
  const AttentionForm form{.rows = 1, .queries = 4, .slots = 9, .bias = true, .relative = true};
  ops::AttentionInputs in = attention_inputs(form, 3);
  const int64_t entry = form.kv_heads * form.size;
  in.cache_head = Tensor::from(std::vector<int32_t>{0}, {1});
  const Tensor expected = output_of(in);
  const Tensor keys = clone(in.cache_k);
  const Tensor ring_values = clone(in.cache_v);
  for (int64_t shift = 1; shift < form.slots; ++shift) {
    for (int64_t i = 0; i < keys.numel(); ++i) {
      const int64_t to = (i + shift * entry) % keys.numel();
      in.cache_k.data<double>()[to] = keys.data<double>()[i];
      in.cache_v.data<double>()[to] = ring_values.data<double>()[i];
    }
    in.cache_head = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(shift)}, {1});
    EXPECT_LE(relative_error(output_of(in), expected), 1e-14) << "head " << shift;
  }
}

TEST(Attention, DropoutKeepsTheMean) {
  AttentionForm form{.rows = 1, .queries = 3, .slots = 4, .dropout = 0.25};
  ops::AttentionInputs in = attention_inputs(form, 4);
  const int64_t count = 20000;
  std::vector<double> mean(static_cast<size_t>(form.queries * form.heads * form.value_size));
  for (int64_t step = 0; step < count; ++step) {
    in.key.step = static_cast<uint32_t>(step);
    const std::vector<double> out = output_of(in).to_vector<double>();
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += out[i] / static_cast<double>(count);
  }
  in.dropout = 0;
  // A mean over n draws of probabilities times values of order 1 has a deviation below sqrt(p / (1 - p) / n) = 0.004;
  // five of them.
  const std::vector<double> expected = output_of(in).to_vector<double>();
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], expected[i], 0.02);
}

TEST(Attention, MasksBelongToGlobalRows) {
  const AttentionForm form{.rows = 3, .queries = 5, .slots = 4, .dropout = 0.5};
  ops::AttentionInputs in = attention_inputs(form, 5);
  const Tensor whole = output_of(in);
  for (Tensor* tensor : {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.cache_head, &in.first_visible}) {
    *tensor = tensor->slice(0, 1, 3);
  }
  in.first_row += 1;
  EXPECT_LE(relative_error(output_of(in), whole.slice(0, 1, 3)), 1e-14);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const AttentionForm form{.heads = 4, .kv_heads = 2, .slots = 3, .bias = true};
  ops::AttentionInputs in = attention_inputs(form, 6);
  ops::AttentionInputs wrong = in;
  wrong.k = RandomTensors(1).normal({2, 5, 3, 3});
  EXPECT_ERROR(output_of(wrong), ErrorKind::internal, "attention: 4 query heads are no multiple of 3 key heads");
  wrong = in;
  wrong.bias = in.bias.slice(1, 1, in.bias.dim(1)).slice(0, 0, 1).reshape({1, in.bias.dim(1) - 1});
  EXPECT_ERROR(output_of(wrong), ErrorKind::internal, "attention: bias is");
  wrong = in;
  wrong.bias = RandomTensors(1).normal({4, 3});
  EXPECT_ERROR(output_of(wrong), ErrorKind::internal, "is outside a table of 3");
  wrong = in;
  wrong.first_visible = Tensor::from(std::vector<int32_t>(10, -4), {2, 5});
  EXPECT_ERROR(output_of(wrong), ErrorKind::internal, "lies before the 3 carried keys");
}

}  // namespace
}  // namespace quire::test
