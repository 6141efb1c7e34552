// model.attention.softmax.implementation: what is refused, and what is kept.
#include "trainers/setup/attention_choice.h"

#include <gtest/gtest.h>

#include "layers/model/attention_calls.h"
#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

constexpr const char* kConfig = R"(
run: {name: choice, precision: f32, device: cpu}
data: {subsequence: 24, rows: 6, accumulate: 2}
model:
  width: 16
  layers: 3
  heads: 2
  position: {kind: rope}
  attention: {softmax: {window: 9, carry: {kind: kv}}}
)";

RunConfig config(const std::vector<std::string>& settings) {
  return parse_config<RunConfig>(kConfig, "choice.yaml", settings);
}

void expect_refused(std::vector<std::string> settings, const char* reason) {
  settings.insert(settings.end(), {"run.device=auto", "model.attention.softmax.implementation=cudnn"});
  EXPECT_ERROR(config(settings), ErrorKind::config, reason);
  // With auto, a call that cuDNN cannot compute is no error.
  settings.back() = "model.attention.softmax.implementation=auto";
  EXPECT_NO_THROW(config(settings)) << reason;
}

TEST(AttentionChoice, CudnnIsRefusedWhereItCannot) {
  EXPECT_NO_THROW(config({"run.device=auto", "model.attention.softmax.implementation=cudnn"}));
  EXPECT_NO_THROW(config({"run.device=auto", "model.attention.softmax.implementation=cudnn", "data.pack=concat"}));
  expect_refused({"model.position.kind=xl"}, "layer 0: it has no position terms; use position.kind: rope or none");
  expect_refused({"model.position.kind=alibi"}, "position terms");
  expect_refused({"model.layer_overrides=[{layers: [2], position: {kind: t5}}]"}, "layer 2");
  expect_refused({"model.dropout.attention=0.1"}, "dropout.attention");
  expect_refused({"model.attention.softmax.attend_self=false"}, "attend_self");
  expect_refused({"model.memory=[{kind: knn, layers: [1], combine: joint}]"},
                 "layer 1: a memory of kind knn joins its attention");
  EXPECT_NO_THROW(config(
      {"run.device=auto", "model.attention.softmax.implementation=cudnn", "model.memory=[{kind: knn, layers: [1]}]"}));
}

TEST(AttentionChoice, MixersWithKernelsOfTheirOwnHaveNone) {
  const std::string moba = "{kind: moba, moba: {block: 8, top_k: 2, carry: {length: 16}}}";
  EXPECT_ERROR(config({"model.attention=" + moba, "model.attention.softmax.implementation=cudnn"}), ErrorKind::config,
               "model.attention.softmax: belongs to kind: softmax, but kind is moba here");
  const RunConfig mixed = config({"model.attention.softmax.implementation=auto",
                                  "model.layer_overrides=[{layers: [1], attention: " + moba + "}]"});
  const std::vector<AttentionCall> calls = attention_calls(mixed.model, 3, mixed.data.subsequence, false, DType::bf16);
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].layer, 0);
  EXPECT_EQ(calls[1].layer, 2);
}

TEST(AttentionChoice, ARunOnTheCpuIsRefusedBeforeAnythingIsMade) {
  const RunConfig asked = config({"run.device=auto", "model.attention.softmax.implementation=cudnn"});
  const Machine cpu{.device = kCpu, .dtype = DType::f32, .backend = "cpu"};
  EXPECT_ERROR(require_attention(asked, cpu, {}), ErrorKind::config, "the run computes on no GPU");
  EXPECT_NO_THROW(require_attention(config({"model.attention.softmax.implementation=auto"}), cpu, {}));
}

TEST(AttentionChoice, TheShapeIsThatOfTheLargestPass) {
  const RunConfig run =
      config({"model.key_heads=1", "model.layer_overrides=[{layers: [1], attention: {softmax: {window: 40}}}]"});
  const std::vector<AttentionCall> calls = attention_calls(run.model, 3, run.data.subsequence, false, DType::bf16);
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0].problem.to_string(), "queries 24, carried 9, heads 2/1, size 8/8, window 9, bf16");
  EXPECT_EQ(calls[0].problem.rows, 3);
  EXPECT_EQ(calls[1].problem.to_string(), "queries 24, carried 40, heads 2/1, size 8/8, window 40, bf16");
  EXPECT_EQ(calls[2].layer, 2);
  const AttentionCall several = attention_calls(run.model, 3, run.data.subsequence, true, DType::bf16).front();
  EXPECT_EQ(several.problem.to_string(),
            "queries 24, carried 9, heads 2/1, size 8/8, window 9, bf16, several documents in a row");
  EXPECT_EQ(several.why_not_cudnn, "");
}

TEST(AttentionChoice, OnTheCpuAutoChoosesNothingAndSaysSo) {
  const RunConfig run = config({"model.attention.softmax.implementation=auto"});
  const Machine machine = Machine::choose(run.run);
  TrainingState training(run, 258, machine);
  Ranks one;
  const std::vector<std::string> lines = choose_attention(training, run, machine, one);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("attention of 3 layers: queries 24, carried 9"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("own, since cuDNN cannot: the run computes on no GPU"), std::string::npos) << lines[0];
  EXPECT_TRUE(training.attention.empty());
  EXPECT_TRUE(choose_attention(training, config({}), machine, one).empty());
}

TEST(AttentionChoices, AreKeptAsText) {
  const AttentionProblem first{.rows = 2, .queries = 8, .heads = 2, .kv_heads = 2, .size = 8, .value_size = 8};
  AttentionProblem second = first;
  second.window = 3;
  AttentionChoices choices;
  EXPECT_EQ(choices.to_text("versions"), "");
  choices.set(first, ops::AttentionKernels::cudnn);
  choices.set(second, ops::AttentionKernels::own);
  const std::string text = choices.to_text("versions");
  AttentionChoices again;
  EXPECT_FALSE(again.add(text, "other versions"));
  EXPECT_TRUE(again.empty());
  EXPECT_TRUE(again.add("", "other versions"));
  EXPECT_TRUE(again.add(text, "versions"));
  EXPECT_EQ(again.find(first), ops::AttentionKernels::cudnn);
  EXPECT_EQ(again.find(second), ops::AttentionKernels::own);
  AttentionProblem other = first;
  other.rows = 3;  // decides nothing
  EXPECT_EQ(again.find(other), ops::AttentionKernels::cudnn);
  other.queries = 9;
  EXPECT_FALSE(again.find(other));
  EXPECT_ERROR(again.add("versions\nqueries 8: fastest\n", "versions"), ErrorKind::checkpoint, "names no kernels");
}

TEST(AttentionProblem, WhatCudnnNeverComputesIsKnownWithoutIt) {
  AttentionProblem problem{.rows = 2, .queries = 8, .heads = 2, .kv_heads = 2, .size = 64, .value_size = 64};
  EXPECT_EQ(why_not_in_cudnn(problem), "");
  problem.type = DType::f32;
  EXPECT_EQ(why_not_in_cudnn(problem), "its backward pass has no f32; use run.precision: bf16");
  problem.type = DType::bf16;
  problem.size = 20;
  EXPECT_NE(why_not_in_cudnn(problem).find("heads have 20 features"), std::string::npos);
  problem.size = 264;
  EXPECT_NE(why_not_in_cudnn(problem), "");
  problem.size = 64;
  problem.queries = 1;
  EXPECT_NE(why_not_in_cudnn(problem), "");
  problem.carried = 1;
  EXPECT_EQ(why_not_in_cudnn(problem), "");
}

}  // namespace
}  // namespace quire::test
