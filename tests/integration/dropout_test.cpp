// Tests masks of dropout over whole training steps.
#include <gtest/gtest.h>

#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/training_run.h"

namespace quire::test {
namespace {

// Weights stay as they are, so the losses of two runs differ by the mask of the sinusoids alone.
std::vector<double> losses(int64_t position_steps, bool resumed = false) {
  const TemporaryDirectory folder;
  write_corpus(folder / "corpus.h5",
               {{"train", texts_of_lengths({13, 15, 30, 27, 23, 40, 11, 18})}, {"valid", texts_of_lengths({20})}});
  const std::unique_ptr<Corpus> corpus = Corpus::open(folder / "corpus.h5");
  const RunConfig config =
      mechanism_config({"model.position.kind=xl", "model.dropout.position=0.5", "optimizer.lr=0",
                        "optimizer.weight_decay=0", "model.dropout.position_steps=" + std::to_string(position_steps)});
  TrainingRun run(config, *corpus);
  if (!resumed) return run.losses(4);
  std::vector<double> all = run.losses(3);
  TrainingRun rest(config, *corpus, run.save(folder / "checkpoints"));
  all.push_back(rest.losses(1)[0]);
  return all;
}

TEST(PositionDropout, KeepsItsMaskForSomeSteps) {
  const std::vector<double> always = losses(100);  // the first mask
  const std::vector<double> ones = losses(1);
  const std::vector<double> twos = losses(2);
  const std::vector<double> threes = losses(3);
  for (const auto& all : {ones, twos, threes}) EXPECT_EQ(all[0], always[0]);
  EXPECT_EQ(twos[1], always[1]);
  EXPECT_EQ(threes[1], always[1]);
  EXPECT_NE(ones[1], always[1]);
  EXPECT_EQ(threes[2], always[2]);
  EXPECT_NE(twos[2], always[2]);
  // The second mask of both.
  EXPECT_EQ(twos[3], threes[3]);
  EXPECT_NE(twos[3], always[3]);
  EXPECT_EQ(losses(2, true), twos);
}

}  // namespace
}  // namespace quire::test
