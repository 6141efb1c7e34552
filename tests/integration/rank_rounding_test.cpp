// Measures how much the different rounding of sums on another number of ranks is amplified, and where. Adam divides a
// gradient by its own size: one that is zero but for rounding moves its weight by whole steps. In Transformer-XL the
// projection of relative positions has such directions, because a term that all distances share cancels in the softmax;
// so the loss does not see them. README.md gives the figures.
#include <gtest/gtest.h>

#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/rank_runs.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

struct Differences {
  double loss = 0;              // relative, the largest of all steps
  double relative_weights = 0;  // weights of the projection of relative positions, relative to its largest weight
  double other_weights = 0;
};

Differences one_and_three_ranks(const std::string& optimizer) {
  const TemporaryDirectory folder{TemporaryDirectory::fast_parent()};
  write_corpus(folder / "corpus.h5",
               {{"train", texts_of_lengths({401, 804, 1209, 1616, 2025, 2436, 2849})}, {"valid", {}}});
  const auto run = [&](int ranks) {
    RankRun one{mechanism_config({"run={name: rounding, precision: f32, threads: 1, seed: 3}",
                                  "data={subsequence: 16, rows: 6, corpus: " + (folder / "corpus.h5").string() + "}",
                                  "model.width=32", "model.mlp={kind: swiglu, hidden: 64}", "model.position.kind=xl",
                                  "model.attention.softmax.carry={kind: hidden, length: 12}",
                                  "model.initialization={std: 0.02, scale_residual: true}", optimizer,
                                  "schedule={kind: cosine, warmup: 5, steps: 100}", "evaluate.every=0",
                                  "checkpoint.every=0", "log.every=1"}),
                folder / std::to_string(ranks)};
    train_until(one, ranks, 100);
    return one;
  };
  const RankRun one = run(1);
  const RankRun three = run(3);
  Differences found;
  const auto expected = metrics_of(one.folder).losses;
  for (const auto& [step, loss] : metrics_of(three.folder).losses) {
    found.loss = std::max(found.loss, std::abs(loss - expected.at(step)) / expected.at(step));
  }
  const auto weights = [](const RankRun& of) {
    return CheckpointReader::open(of.folder / "checkpoints/step-00000100").read_part("model").tensors;
  };
  const std::vector<NamedTensor> a = weights(one);
  const std::vector<NamedTensor> b = weights(three);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool relative = a[i].name.ends_with("relative.weight");
    double& worst = relative ? found.relative_weights : found.other_weights;
    worst = std::max(worst, relative_error(b[i].tensor, a[i].tensor));
  }
  std::cout << optimizer << ": losses " << found.loss << ", relative positions " << found.relative_weights
            << ", other weights " << found.other_weights << "\n";
  return found;
}

TEST(RankRounding, IsScaledUpWhereAGradientIsZeroButForRounding) {
  const Differences shipped = one_and_three_ranks("optimizer={lr: 3e-3}");
  EXPECT_LE(shipped.loss, 1e-6);
  EXPECT_GE(shipped.relative_weights, 1e-5);  // else this page is wrong
  EXPECT_LE(shipped.relative_weights, 1e-2);
  EXPECT_LE(shipped.other_weights, 1e-4);
  const Differences large = one_and_three_ranks("optimizer={lr: 3e-3, eps: 1e-4}");
  EXPECT_LE(large.loss, 1e-6);
  EXPECT_LE(large.relative_weights, 1e-5);
  EXPECT_LE(large.other_weights, 1e-5);
}

}  // namespace
}  // namespace quire::test
