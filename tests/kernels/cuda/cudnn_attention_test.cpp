// Tests how the operands of cuDNN's attention are made from those of ops::attention.
// tests/support/cuda_shim/cudnn_plans.cpp computes in cuDNN's place.
#include <gtest/gtest.h>

#include "kernels/attention_choices.h"
#include "kernels/cuda/cudnn/cudnn_attention.h"
#include "tests/support/attention_inputs.h"
#include "tests/support/compare.h"
#include "tests/support/cuda_device.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

class CudnnAttention : public CudaTestWithParam<AttentionForm> {};

std::vector<Tensor*> tensors_of(ops::AttentionInputs& in) {
  return {&in.q, &in.k, &in.v, &in.cache_k, &in.cache_v, &in.cache_head, &in.first_visible, &in.sequences};
}

struct Results {
  Tensor out;
  ops::AttentionGradients gradients;
};

Results run(const ops::AttentionInputs& in, const Tensor& dout) {
  Results results;
  results.out = Tensor::empty(dout.shape(), in.q.dtype(), in.q.device());
  const Tensor lse = Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, in.q.dtype(), in.q.device());
  ops::attention(results.out, lse, in);
  results.gradients = gradients_like(in);
  ops::attention_backward(results.gradients, dout, results.out, lse, in);
  return results;
}

// Rows that end in padding: row 1 early, the last row at once.
void add_padding(ops::AttentionInputs& in) {
  const int64_t rows = in.q.dim(0);
  const int64_t queries = in.q.dim(1);
  for (int64_t i = 0; i < queries; ++i) {
    int32_t* const first = in.first_visible.data<int32_t>();
    if (i >= queries / 2) first[queries + i] = static_cast<int32_t>(queries + 1);
    first[(rows - 1) * queries + i] = static_cast<int32_t>(queries + 1);
  }
  in.band.padding = true;
}

// Several documents in a row: three, one of them a token; the whole row; with padding: none; two with a gap between
// them and a tail behind them. The first one of a row begins with all keys of the ring, with some or with none.
void cut_into_documents(ops::AttentionInputs& in, const AttentionForm& form, bool padding) {
  const int64_t queries = form.queries;
  const std::vector<std::pair<int64_t, int64_t>> kinds[] = {
      {{0, 3}, {3, 4}, {4, queries}}, {{0, queries}}, {}, {{0, 1}, {4, 6}}};
  const int64_t carried[] = {form.slots, form.slots / 2, 1, form.slots};
  std::vector<int32_t> first(static_cast<size_t>(form.rows * queries), static_cast<int32_t>(queries + 1));
  std::vector<int32_t> sequences;
  for (int64_t row = 0; row < form.rows; ++row) {
    const int64_t kind = padding ? row % 4 : row % 2;
    for (const auto& [begin, requested_end] : kinds[kind]) {
      const int64_t end = std::min(requested_end, queries);
      if (begin >= end) continue;
      for (const int64_t number : {row, begin, end - begin}) sequences.push_back(static_cast<int32_t>(number));
      const int64_t low = begin == 0 ? -carried[kind] : begin;
      for (int64_t i = begin; i < end; ++i) {
        first[static_cast<size_t>(row * queries + i)] =
            static_cast<int32_t>(form.window ? std::max(low, i - *form.window) : low);
      }
    }
  }
  in.first_visible = Tensor::from(first, {form.rows, queries});
  in.sequences = Tensor::from(sequences, {static_cast<int64_t>(sequences.size()) / 3, 3});
  in.band.padding = padding;
  in.band.several_documents = true;
}

// in: in f64 on the CPU, whose kernels only ask first_visible.
void expect_equal_to_the_cpu(ops::AttentionInputs in, const AttentionForm& form) {
  const Tensor dout = RandomTensors(5).normal({in.q.dim(0), in.q.dim(1), in.q.dim(2), in.v.dim(3)});
  const Results expected = run(in, dout);
  in.band.window = form.window;
  in.band.carried = std::min(form.slots, form.window.value_or(form.slots));
  in.kernels = ops::AttentionKernels::cudnn;
  for (Tensor* tensor : tensors_of(in)) *tensor = on_device(converted(*tensor, DType::f32), kCuda);
  const Results got = run(in, on_device(converted(dout, DType::f32), kCuda));
  // f32 operands and sums in f64: rounding of the inputs, amplified by exp, and of the results.
  constexpr double kTolerance = 1e-5;
  EXPECT_LT(relative_error(got.out, expected.out), kTolerance);
  const auto& g = got.gradients;
  const auto& w = expected.gradients;
  EXPECT_LT(relative_error(g.dq, w.dq), kTolerance);
  EXPECT_LT(relative_error(g.dk, w.dk), kTolerance);
  EXPECT_LT(relative_error(g.dv, w.dv), kTolerance);
  if (form.slots == 0) return;
  EXPECT_LT(relative_error(g.dcache_k, w.dcache_k), kTolerance);
  EXPECT_LT(relative_error(g.dcache_v, w.dcache_v), kTolerance);
}

TEST_P(CudnnAttention, EqualsTheCpuKernelsInBothPasses) {
  for (const bool padding : {false, true}) {
    SCOPED_TRACE(padding ? "padding" : "no padding");
    ops::AttentionInputs in = attention_inputs(GetParam(), 17);
    if (padding) add_padding(in);
    expect_equal_to_the_cpu(in, GetParam());
  }
}

TEST_P(CudnnAttention, EqualsTheCpuKernelsWithSeveralDocumentsInARow) {
  for (const bool padding : {false, true}) {
    SCOPED_TRACE(padding ? "padding" : "no padding");
    ops::AttentionInputs in = attention_inputs(GetParam(), 17);
    cut_into_documents(in, GetParam(), padding);
    expect_equal_to_the_cpu(in, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, CudnnAttention,
    ::testing::Values(
        AttentionForm{.name = "causal", .rows = 3, .queries = 9},
        AttentionForm{.name = "one_query", .rows = 3, .queries = 1, .slots = 3},
        AttentionForm{.name = "window", .rows = 3, .queries = 23, .window = 4},
        AttentionForm{.name = "wide_window", .rows = 3, .queries = 7, .slots = 2, .window = 100},
        AttentionForm{.name = "grouped", .rows = 3, .queries = 6, .heads = 6, .kv_heads = 2, .value_size = 5},
        AttentionForm{.name = "ring", .rows = 4, .queries = 7, .slots = 5},
        AttentionForm{.name = "ring_longer_than_window", .rows = 4, .queries = 8, .slots = 11, .window = 3},
        AttentionForm{.name = "window_longer_than_ring", .rows = 4, .queries = 9, .slots = 3, .window = 6},
        AttentionForm{.name = "in_packs",
                      .rows = 4,
                      .queries = 5,
                      .heads = 4,
                      .kv_heads = 2,
                      .size = 8,
                      .value_size = 4,
                      .slots = 6}),
    [](const auto& tested) { return tested.param.name; });

using CudnnAttentionOperands = CudnnAttention;

TEST_F(CudnnAttentionOperands, WhatItDoesNotComputeIsRefused) {
  ops::AttentionInputs in = attention_inputs({.slots = 4, .attend_self = false}, 3);
  in.kernels = ops::AttentionKernels::cudnn;
  in.band.carried = 4;
  for (Tensor* tensor : tensors_of(in)) *tensor = on_device(converted(*tensor, DType::f32), kCuda);
  const Tensor out = Tensor::empty(in.q.shape(), DType::f32, kCuda);
  const Tensor lse = Tensor::empty({in.q.dim(0), in.q.dim(2), in.q.dim(1)}, DType::f32, kCuda);
  const auto fails_with = [&](const char* text) {
    EXPECT_ERROR(ops::attention(out, lse, in), ErrorKind::internal, text);
  };
  fails_with("every query sees itself");
  in.attend_self = true;
  in.dropout = 0.1;
  fails_with("dropout");
  in.dropout = 0;
  in.band.carried = 5;
  fails_with("5 keys of a ring of 4");
  in.band.carried = 4;
  in.band.several_documents = true;
  fails_with("sequences go with several documents");
  in.sequences = Tensor::zeros({2, 2}, DType::i32, kCuda);
  fails_with("must be [sequences, 3] i32");
  in.band.several_documents = false;
  in.sequences = {};
  ops::attention(out, lse, in);
}

// With padding alone cuDNN is not called, and everything is zero.
TEST_F(CudnnAttentionOperands, RowsWithoutDocumentsGiveZeros) {
  const AttentionForm form{.rows = 2, .queries = 4, .slots = 3};
  ops::AttentionInputs in = attention_inputs(form, 3);
  in.first_visible = Tensor::from(std::vector<int32_t>(8, 5), {2, 4});
  in.sequences = Tensor::empty({0, 3}, DType::i32);
  in.band.padding = in.band.several_documents = true;
  expect_equal_to_the_cpu(in, form);
}

TEST_F(CudnnAttentionOperands, RefusedPlansSayWhyAndTheOthersAreAsked) {
  cuda::answer_for_cudnn();
  const AttentionProblem good{.rows = 2, .queries = 12, .heads = 2, .kv_heads = 1, .size = 8, .value_size = 8};
  EXPECT_EQ(why_no_cudnn_plans(good), "");
  AttentionProblem refused = good;
  refused.queries = 13;
  EXPECT_NE(why_no_cudnn_plans(refused).find("refused"), std::string::npos);
  EXPECT_EQ(cudnn_version(), "9.99.0");
  bind_cudnn({});
  EXPECT_EQ(why_no_cudnn_plans(good), "the run computes on no GPU");
}

// measure_attention calls both kinds of kernels on one problem, and takes the faster one.
TEST_F(CudnnAttentionOperands, TheFasterKernelsAreChosen) {
  AttentionProblem problem{.rows = 2,
                           .queries = 5,
                           .carried = 3,
                           .heads = 2,
                           .kv_heads = 1,
                           .size = 8,
                           .value_size = 8,
                           .window = 3,
                           .type = DType::f32};
  for (const bool several_documents : {false, true}) {
    problem.several_documents = several_documents;
    for (const bool cudnn : {false, true}) {
      int calls = 0;
      const auto seconds = [&](const std::function<void()>& both_passes) {
        both_passes();
        return ++calls == 1 && !cudnn ? 1.0 : (calls == 1 ? 3.0 : 2.0);
      };
      EXPECT_EQ(measure_attention(problem, kCuda, seconds),
                cudnn ? ops::AttentionKernels::cudnn : ops::AttentionKernels::own);
      EXPECT_EQ(calls, 2);
    }
  }
}

}  // namespace
}  // namespace quire::test
