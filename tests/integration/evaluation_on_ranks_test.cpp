// Tests evaluation on several ranks: progress, stopping, errors and threads.
#include <array>

#include "core/ranks/in_process.h"
#include "data/corpus/corpus_on_ranks.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_run.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

class EvaluationOnRanks : public ::testing::Test {
 protected:
  EvaluationOnRanks() { write_corpus(folder_ / "c.h5", {{"valid", texts_of_lengths({1, 83, 15, 16, 17, 40, 2})}}); }

  // Evaluates with the ranks of options.ranks.
  EvaluationResult evaluate_on(Ranks& ranks, EvaluationOptions options) const {
    const RunConfig config = parse_config<RunConfig>(kTinyConfig, "tiny", {"model.initialization.std=0.4"});
    const std::unique_ptr<Corpus> corpus = open_corpus_on_ranks(folder_ / "c.h5", Verify::always, {}, ranks);
    const Machine machine = Machine::choose(config.run);
    ParameterStore store;
    const Network network(store, config.model, corpus->tokenizer().vocabulary_size(), machine.dtype);
    store.allocate(machine.dtype, machine.device, 5);
    options.split = "valid";
    options.ranks = &ranks;
    return evaluate(store, evaluation_config(config), *corpus, machine, options);
  }

  // Returns the values that a file of losses has for the targets.
  static std::vector<std::array<double, 5>> targets_of(const EvaluationResult& result) {
    std::vector<std::array<double, 5>> values;
    for (const TargetLoss& of : result.targets) {
      values.push_back({static_cast<double>(of.document), static_cast<double>(of.position), of.nll,
                        static_cast<double>(of.target), static_cast<double>(of.best)});
    }
    return values;
  }

  TemporaryDirectory folder_;
};

// All ranks stop after the same step, and have read what one rank would have.
TEST_F(EvaluationOnRanks, StopsInStep) {
  Ranks one;
  const auto after_two_steps = [&](Ranks& ranks, std::vector<int64_t>& shown) {
    int asked = 0;
    EvaluationOptions options;
    options.rows = 4;
    options.progress = [&](int64_t done, int64_t total) {
      shown.push_back(done);
      EXPECT_EQ(total, 174 + 7);
    };
    options.stop = [&] {
      // An exchange, as of training that asks all ranks for signals.
      std::array<double, 1> votes{++asked == 2 && ranks.rank() == ranks.size() - 1 ? 1.0 : 0.0};
      ranks.sum(votes);
      return votes[0] > 0;
    };
    return evaluate_on(ranks, options);
  };
  std::vector<int64_t> expected_progress;
  const EvaluationResult expected = after_two_steps(one, expected_progress);
  EXPECT_FALSE(expected.complete);
  EXPECT_EQ(expected_progress.size(), 2U);
  for (const int size : {2, 3, 4}) {
    run_in_process(size, [&](Ranks& ranks) {
      std::vector<int64_t> progress;
      const EvaluationResult result = after_two_steps(ranks, progress);
      EXPECT_FALSE(result.complete);
      EXPECT_EQ(progress, expected_progress);
      EXPECT_EQ(result.nll, expected.nll);
      EXPECT_EQ(result.context_mean, expected.context_mean);
    });
  }
}

// More ranks than documents, and more than evaluate.rows.
TEST_F(EvaluationOnRanks, EveryRankHasTheWholeResult) {
  Ranks one;
  EvaluationOptions options;
  options.rows = 1;
  options.bin_width = 0;
  options.each_target = true;
  const EvaluationResult expected = evaluate_on(one, options);
  for (const int size : {3, 9}) {
    run_in_process(size, [&](Ranks& ranks) {
      const EvaluationResult result = evaluate_on(ranks, options);
      EXPECT_EQ(to_json(result, RunConfig{}, 1)["nll"], to_json(expected, RunConfig{}, 1)["nll"]);
      EXPECT_EQ(to_json(result, RunConfig{}, 1)["harness"], to_json(expected, RunConfig{}, 1)["harness"]);
      EXPECT_EQ(result.context_mean, expected.context_mean);
      EXPECT_EQ(positions_to_json(result, result.by_position), positions_to_json(expected, expected.by_position));
      EXPECT_EQ(targets_of(result), targets_of(expected));
      for (size_t i = 0; i < expected.documents.size(); ++i) {
        EXPECT_EQ(result.documents[i].nll, expected.documents[i].nll) << i;
        EXPECT_EQ(positions_to_json(result, result.documents[i].by_position),
                  positions_to_json(expected, expected.documents[i].by_position));
      }
    });
  }
}

// A rank that ends in the middle is named, with what it did.
TEST_F(EvaluationOnRanks, AnErrorOfOneRankEndsAll) {
  const auto failing = [&](Ranks& ranks) {
    EvaluationOptions options;
    options.progress = [&](int64_t, int64_t) {
      if (ranks.rank() == 1) fail(ErrorKind::disk, "no space");
    };
    evaluate_on(ranks, options);
  };
  EXPECT_ERROR(run_in_process(3, failing), ErrorKind::disk, "rank 1 on localhost, evaluating: no space");
}

TEST(ThreadsOfRanks, ShareTheCoresOfTheirHost) {
  RunSection run;
  const Ranks one;
  const int cores = threads_of(run, one);
  run_in_process(3,
                 [&](Ranks& ranks) {
                   const int expected = ranks.rank() == 1 ? cores : std::max(1, cores / 2);
                   EXPECT_EQ(threads_of(run, ranks), expected);
                   RunSection five = run;
                   five.threads = 5;
                   EXPECT_EQ(threads_of(five, ranks), 5);
                 },
                 {.hosts = {"a", "b", "a"}, .probe = {}});
}

}  // namespace
}  // namespace quire::test
