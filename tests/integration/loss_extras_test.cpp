// Label smoothing and z-loss in training steps: reported beside the loss, which they do not change.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

class LossExtras : public ::testing::Test {
 protected:
  LossExtras() {
    write_corpus(folder_ / "corpus.h5",
                 {{"train", texts_of_lengths({3, 15, 30, 7, 23, 40, 1, 18})}, {"valid", texts_of_lengths({20, 9})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }
  static double number(const StepResult& result, const std::string& name) {
    for (const auto& [found, value] : result.telemetry) {
      if (found == name) return value;
    }
    return std::nan("");
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

const std::string kExtras = "loss={z_weight: 0.5, label_smoothing: 0.25}";

// With weights of nearly 0 all logits are 0: log(sum(exp)) is the log of the vocabulary, and so is every loss.
TEST_F(LossExtras, AreReportedBeforeTheirWeights) {
  TrainingRun run(mechanism_config({kExtras, "model.initialization.std=1e-30"}), *corpus_);
  const double log_of_all = std::log(static_cast<double>(run.training().network.model.vocabulary()));
  const StepResult first = run.step();
  EXPECT_NEAR(first.loss, log_of_all, 1e-9);
  EXPECT_NEAR(number(first, "z_loss"), log_of_all * log_of_all, 1e-9);
  EXPECT_NEAR(number(first, "uniform_nll"), log_of_all, 1e-9);
  TrainingRun plain(mechanism_config({"model.initialization.std=1e-30"}), *corpus_);
  const StepResult without = plain.step();
  EXPECT_TRUE(std::isnan(number(without, "z_loss")));
  EXPECT_TRUE(std::isnan(number(without, "uniform_nll")));
}

TEST_F(LossExtras, ChangeGradientsAndNoLoss) {
  TrainingRun plain(mechanism_config({}), *corpus_);
  TrainingRun extras(mechanism_config({kExtras}), *corpus_);
  const StepResult a = plain.step(), b = extras.step();
  EXPECT_NEAR(b.loss, a.loss, 1e-12);
  EXPECT_GT(std::abs(b.grad_norm - a.grad_norm), 1e-3 * a.grad_norm);
}

// A bias of the logits can lower all of them, so the log of the sum approaches 0.
TEST_F(LossExtras, TheZLossIsLearned) {
  TrainingRun run(mechanism_config({"loss.z_weight=100", "model.embedding.output_bias=true", "optimizer.lr=0.3",
                                    "schedule={kind: constant, warmup: 0}"}),
                  *corpus_);
  const double first = number(run.step(), "z_loss");
  for (int step = 0; step < 20; ++step) run.step();
  EXPECT_LT(number(run.step(), "z_loss"), first / 4);
}

TEST_F(LossExtras, SharesOfMoreThanAllAreRefused) {
  EXPECT_ERROR(mechanism_config({"loss.label_smoothing=1"}), ErrorKind::config, "loss.label_smoothing");
  EXPECT_ERROR(mechanism_config({"loss.z_weight=-1"}), ErrorKind::config, "loss.z_weight");
}

}  // namespace
}  // namespace quire::test
