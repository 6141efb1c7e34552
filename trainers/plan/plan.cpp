#include "trainers/plan/plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

namespace {

// A batch of more tokens is not made: its plan follows from those of two smaller ones.
constexpr int64_t kMaxTokens = int64_t{1} << 20;
constexpr int64_t kSampledTokens = kMaxTokens / 4;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The rows that a rank reads at once. When there are too many, `larger` of them are run, and half of these, to see what
// a row adds.
struct SampledRows {
  int64_t all;
  int64_t larger;
  int64_t smaller;

  // `blocks`: the number of blocks of rows that exist at the same time.
  SampledRows(int64_t rows, int64_t length, int64_t blocks)
      : all(rows),
        larger(rows <= kMaxTokens / (blocks * length)
                   ? rows
                   : std::min(rows, std::max<int64_t>(2, kSampledTokens / length / blocks))),
        smaller(std::max<int64_t>(1, larger / 2)) {}

  int64_t scaled(int64_t bytes_of_smaller, int64_t bytes_of_larger) const {
    if (larger == all) return bytes_of_larger;
    return bytes_of_larger + (bytes_of_larger - bytes_of_smaller) / (larger - smaller) * (all - larger);
  }
};

// A row of more tokens is not made either.
constexpr int64_t kMaxLength = int64_t{1} << 18;
constexpr int64_t kSampledLength = kMaxLength / 4;

// The polynomial through three lengths (Lagrange).
int64_t at_length(int64_t length, const std::array<int64_t, 3>& lengths, const std::array<int64_t, 3>& sizes) {
  double sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    auto term = static_cast<double>(sizes[i]);
    for (size_t j = 0; j < 3; ++j) {
      if (j == i) continue;
      term *= static_cast<double>(length - lengths[j]) / static_cast<double>(lengths[i] - lengths[j]);
    }
    sum += term;
  }
  return std::llround(std::max(0.0, sum));
}

// A plan of short enough rows.
Plan plan_of_rows(const RunConfig& config, int64_t ranks, int threads) {
  const int64_t rows = ceil_div(config.data.rows, ranks);
  const int64_t blocks = std::min(config.data.accumulate, rows);
  // The third block of rows finds what the second one found.
  const int64_t sampled_blocks = std::min<int64_t>(blocks, rows * config.data.subsequence <= kMaxTokens ? blocks : 2);
  const SampledRows block(ceil_div(rows, blocks), config.data.subsequence, sampled_blocks);
  const SampledRows evaluation(ceil_div(config.evaluate.rows, ranks), config.data.subsequence, 1);
  const bool whole = block.larger == block.all && sampled_blocks == blocks && evaluation.larger == evaluation.all;
  if (whole) return make_whole_plan(config, ranks, threads);
  const auto sampled = [&](int64_t block_rows, int64_t evaluation_rows) {
    RunConfig part = config;
    part.data.rows = sampled_blocks * block_rows * ranks;
    part.data.accumulate = sampled_blocks;
    part.evaluate.rows = evaluation_rows * ranks;
    return make_whole_plan(part, ranks, threads);
  };
  const Plan smaller = sampled(block.smaller, evaluation.smaller);
  Plan plan = sampled(block.larger, evaluation.larger);
  const int64_t sampled_rows = plan.rows;
  const int64_t sampled_state = plan.state + plan.host_state + plan.file_state;
  plan.rows = rows;
  for (int64_t* const state : {&plan.state, &plan.host_state, &plan.file_state}) *state = *state / sampled_rows * rows;
  const double free_share = static_cast<double>(plan.free_blocks) / static_cast<double>(plan.activations);
  plan.activations = block.scaled(smaller.activations, plan.activations);
  plan.free_blocks = static_cast<int64_t>(free_share * static_cast<double>(plan.activations));
  plan.evaluation = evaluation.scaled(smaller.evaluation, plan.evaluation);
  // An evaluation reuses free blocks of a step as far as they suffice.
  plan.evaluation_blocks = std::max<int64_t>(0, plan.evaluation - plan.activations - plan.free_blocks);
  plan.checkpoint += (sampled_state / sampled_rows) * (config.data.rows - sampled_rows * ranks);
  return plan;
}

}  // namespace

Plan make_plan(const RunConfig& config, int64_t ranks, int threads) {
  if (ranks > config.data.rows) {
    fail(ErrorKind::config,
         "-n {}: data.rows is {}, and a rank without a row only waits for the others; give fewer ranks or more rows",
         ranks, config.data.rows);
  }
  const int64_t length = config.data.subsequence;
  if (length <= kMaxLength) return plan_of_rows(config, ranks, threads);
  // Every size is a polynomial of at most the second degree in the length, so three lengths give it. They have the same
  // part of a chunk at their end, for which a model copies tensors.
  const int64_t period = alignment_of(config.model);
  std::array<int64_t, 3> lengths{};
  std::array<Plan, 3> plans;
  for (size_t i = 0; i < 3; ++i) {
    const auto part = static_cast<int64_t>(i + 1);
    lengths[i] = std::max(part, part * kSampledLength / period) * period + length % period;
    RunConfig shorter = config;
    shorter.data.subsequence = lengths[i];
    plans[i] = plan_of_rows(shorter, ranks, threads);
  }
  Plan plan = plans[2];
  for (int64_t Plan::*const size :
       {&Plan::state, &Plan::host_state, &Plan::file_state, &Plan::activations, &Plan::evaluation, &Plan::checkpoint}) {
    plan.*size = at_length(length, lengths, {plans[0].*size, plans[1].*size, plans[2].*size});
  }
  // Blocks that fit nowhere keep their share.
  const auto grown = [](int64_t blocks, int64_t whole, int64_t of) {
    return of == 0 ? 0
                   : std::llround(static_cast<double>(blocks) * static_cast<double>(whole) / static_cast<double>(of));
  };
  plan.free_blocks = grown(plans[2].free_blocks, plan.activations, plans[2].activations);
  plan.evaluation_blocks = grown(plans[2].evaluation_blocks, plan.evaluation, plans[2].evaluation);
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan, const RunConfig& config) {
  nlohmann::ordered_json parts;
  for (const Plan::Part& part : plan.parts) parts[part.name] = part.parameters;
  return {
      {"parameters", plan.parameters},
      {"parts", parts},
      {"vocabulary", plan.vocabulary},
      {"rows", plan.rows},
      {"bytes",
       {{"weights", plan.weights},
        {"gradients", plan.gradients},
        {"moments", plan.moments},
        {"average", plan.average},
        {"state", plan.state},
        {"host_state", plan.host_state},
        {"file_state", plan.file_state},
        {"activations", plan.activations},
        {"free_blocks", plan.free_blocks},
        {"evaluation", plan.evaluation},
        {"evaluation_blocks", plan.evaluation_blocks},
        {"workspace", plan.workspace},
        {"checkpoint_work", plan.checkpoint_work},
        {"program", plan.program},
        {"step", plan.step()},
        {"total", plan.total()}}},
      {"disk", {{"checkpoint", plan.checkpoint}, {"kept", (config.checkpoint.keep + 1) * plan.checkpoint}}},
  };
}

}  // namespace quire
