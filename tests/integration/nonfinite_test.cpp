// Tests steps with values that are not finite: what is kept, which rows begin anew, and when the run ends. A NaN is put
// into carried state, as an overflow in the step before would have left it.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/ranks/in_process.h"
#include "core/thread_pool.h"
#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

constexpr int64_t kPoisonedRow = 1;  // the run has three rows

// Long documents: every row goes on with its own for many steps.
class Nonfinite : public ::testing::TestWithParam<std::string> {
 protected:
  Nonfinite() {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({201, 203, 207, 211})}, {"valid", {}}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }
  RunConfig config(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> settings{"run.on_nonfinite={policy: skip, max_skips: 2}", "run.precision=f32",
                                      "model.attention.softmax.carry={kind: " + GetParam() + ", length: 8}"};
    settings.insert(settings.end(), more.begin(), more.end());
    return mechanism_config(settings);
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

// Into everything that a global row carries; nothing when the row is another rank's.
void poison(TrainingState& training, int64_t global_row) {
  if (global_row < training.first_row || global_row >= training.last_row) return;
  for (const NamedTensor& state : training.state->tensors()) {
    if (!is_floating(state.tensor.dtype())) continue;
    const Tensor row = state.tensor.select(0, global_row - training.first_row);
    std::fill_n(row.data<float>(), row.numel(), NAN);
  }
}

bool carries_something(const TrainingState& training, int64_t row) {
  for (const NamedTensor& state : training.state->tensors()) {
    if (state.name.ends_with(".length") && state.tensor.to_vector<int64_t>()[static_cast<size_t>(row)] > 0) return true;
  }
  return false;
}

TEST_P(Nonfinite, ASkippedStepChangesNoWeightAndEmptiesTheRow) {
  TrainingRun run(config({"optimizer.ema.decay=0.5"}), *corpus_);
  run.losses(3);
  poison(run.training(), kPoisonedRow);
  const Tensor weights = clone(run.training().store.values());
  const Tensor average = clone(run.training().average->store().values());
  std::vector<Tensor> moments;
  for (const NamedTensor& moment : run.training().optimizer->save()) moments.push_back(clone(moment.tensor));

  const StepResult result = run.step();
  EXPECT_TRUE(result.skipped);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_EQ(result.cleared_rows, 1);
  EXPECT_EQ(run.training().step, 4);
  EXPECT_EQ(run.training().skipped, 1);
  EXPECT_EQ(run.training().skips_in_a_row, 1);
  EXPECT_TRUE(same_bits(run.training().store.values(), weights));
  EXPECT_TRUE(same_bits(run.training().average->store().values(), average));
  const std::vector<NamedTensor> after = run.training().optimizer->save();
  for (size_t i = 0; i < moments.size(); ++i) EXPECT_TRUE(same_bits(after[i].tensor, moments[i])) << after[i].name;
  for (int64_t row = 0; row < 3; ++row) EXPECT_EQ(carries_something(run.training(), row), row != kPoisonedRow) << row;
  for (const NamedTensor& state : run.training().state->tensors()) {
    if (!is_floating(state.tensor.dtype())) continue;
    for (const double value : values_of(state.tensor)) ASSERT_TRUE(std::isfinite(value)) << state.name;
  }

  const StepResult next = run.step();
  EXPECT_FALSE(next.skipped);
  EXPECT_TRUE(std::isfinite(next.loss));
  EXPECT_EQ(run.training().skips_in_a_row, 0);
  EXPECT_EQ(run.training().skipped, 1);
  EXPECT_FALSE(same_bits(run.training().store.values(), weights));
}

// The other rows carry the same state as without the faulty row.
TEST_P(Nonfinite, OtherRowsCommitWhatTheyRead) {
  TrainingRun clean(config(), *corpus_);
  TrainingRun faulty(config(), *corpus_);
  clean.losses(3);
  faulty.losses(3);
  poison(faulty.training(), kPoisonedRow);
  clean.step();
  ASSERT_TRUE(faulty.step().skipped);
  const auto expected = clean.training().state->tensors();
  const auto got = faulty.training().state->tensors();
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const int64_t row : {0, 2}) {
      EXPECT_TRUE(same_bits(got[i].tensor.slice(0, row, row + 1), expected[i].tensor.slice(0, row, row + 1)))
          << expected[i].name << " row " << row;
    }
  }
}

TEST_P(Nonfinite, BlocksOfRowsAndRanksChangeNothing) {
  const auto faulty_steps = [&](TrainingRun& run) {
    run.losses(2);
    poison(run.training(), kPoisonedRow);
    std::vector<double> losses{run.step().loss};
    for (const double loss : run.losses(3)) losses.push_back(loss);
    return losses;
  };
  TrainingRun one(config(), *corpus_);
  const std::vector<double> expected = faulty_steps(one);
  ASSERT_TRUE(std::isnan(expected[0]));
  const auto expect_same = [&](TrainingRun& run, const std::vector<double>& losses) {
    ASSERT_TRUE(std::isnan(losses[0]));
    for (size_t i = 1; i < expected.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5);
    EXPECT_EQ(run.training().skipped, 1);
    EXPECT_LE(relative_error(run.training().store.values(), one.training().store.values()), 1e-4);
  };
  TrainingRun blocks(config({"data.accumulate=3"}), *corpus_);
  expect_same(blocks, faulty_steps(blocks));

  run_in_process(2, [&](Ranks& mine) {
    ThreadPool pool(1);
    const ThreadPool::Use use(pool);
    TrainingRun rank(config(), *corpus_, &mine);
    expect_same(rank, faulty_steps(rank));
  });
}

TEST_P(Nonfinite, TheRunGoesOnBitForBitAcrossASkip) {
  TrainingRun straight(config({"optimizer.ema.decay=0.5"}), *corpus_);
  straight.losses(3);
  poison(straight.training(), 0);
  straight.losses(1);
  poison(straight.training(), 2);  // a second skip in a row
  TrainingRun resumed(config({"optimizer.ema.decay=0.5"}), *corpus_, straight.save(folder_ / "checkpoints"));
  EXPECT_EQ(resumed.training().skipped, 1);
  EXPECT_EQ(resumed.training().skips_in_a_row, 1);
  ASSERT_TRUE(straight.step().skipped);
  ASSERT_TRUE(resumed.step().skipped);
  EXPECT_EQ(straight.losses(5), resumed.losses(5));
  EXPECT_EQ(difference(straight.snapshot(), resumed.snapshot()), "");
}

TEST_P(Nonfinite, TooManyInARowEndTheRun) {
  for (const bool resume : {false, true}) {
    auto run = std::make_unique<TrainingRun>(config(), *corpus_);
    for (int i = 0; i < 2; ++i) {
      run->losses(1);
      poison(run->training(), 0);
      EXPECT_TRUE(run->step().skipped);
      poison(run->training(), 2);
      EXPECT_TRUE(run->step().skipped);
      if (i > 0) break;
      EXPECT_FALSE(run->step().skipped);  // counts begin anew
    }
    if (resume) {  // with a limit that has been passed already
      run = std::make_unique<TrainingRun>(config({"run.on_nonfinite.max_skips=1"}), *corpus_,
                                          run->save(folder_ / "checkpoints"));
    }
    poison(run->training(), 1);
    try {
      run->step();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::numerics);
      const std::string message = error.what();
      EXPECT_NE(message.find("step 8: loss nan"), std::string::npos) << message;
      EXPECT_NE(message.find("so were the 2 steps before it (run.on_nonfinite.max_skips)"), std::string::npos);
      EXPECT_NE(message.find("Resume from the last checkpoint with a lower optimizer.lr"), std::string::npos);
    }
  }
}

TEST_P(Nonfinite, StopIsTheDefaultAndLeavesEverythingAsItWas) {
  TrainingRun run(config({"run.on_nonfinite={policy: stop}"}), *corpus_);
  run.losses(3);
  poison(run.training(), kPoisonedRow);
  const Tensor weights = clone(run.training().store.values());
  EXPECT_THROW(run.step(), Error);
  EXPECT_TRUE(same_bits(run.training().store.values(), weights));
  EXPECT_EQ(run.training().step, 3);
}

// Finite gradients whose squares are not: the second moment would become infinite, and the weight never move again.
TEST_P(Nonfinite, AGradientTooLargeForTheMomentsIsNoticed) {
  EXPECT_GT(largest_gradient_norm(DType::f32), 1e19);
  EXPECT_LT(largest_gradient_norm(DType::f32), 2e19);
  EXPECT_GT(largest_gradient_norm(DType::f64), 1e150);
  EXPECT_LT(largest_gradient_norm(DType::f64), 1e160);

  for (const std::string clip : {"0", "1"}) {
    TrainingRun run(config({"optimizer.clip=" + clip, "model.norm.last=false", "model.embedding.tied=false"}),
                    *corpus_);
    // Without a last norm the residual stream is the gradient of the projection, and losses are only as large.
    for (const auto& entry : run.training().store.entries()) {
      if (entry.name.rfind("embedding.", 0) != 0) continue;
      const Tensor& value = entry.variable.value();
      std::fill_n(value.data<float>(), value.numel(), 1e20F);
    }
    const Tensor before = clone(run.training().store.values());
    const StepResult result = run.step();
    EXPECT_TRUE(std::isfinite(result.loss)) << result.loss;
    ASSERT_TRUE(std::isfinite(result.grad_norm));
    ASSERT_GT(result.grad_norm, 1.9e19);
    EXPECT_EQ(result.cleared_rows, 0);
    EXPECT_EQ(result.skipped, clip == "0");  // clipped, it is as good as any
    EXPECT_EQ(same_bits(run.training().store.values(), before), clip == "0");
  }
}

INSTANTIATE_TEST_SUITE_P(Caches, Nonfinite, ::testing::Values("hidden", "kv"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace quire::test
