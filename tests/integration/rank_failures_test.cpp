// Makes a rank throw, or stop answering, at every operation of a run: all ranks end with one message that names the
// rank and its operation, and the run can be resumed from its last checkpoint.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "core/check.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/rank_runs.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/training_run.h"
#include "trainers/plan/plan.h"

namespace quire::test {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kSteps = 6;
const std::vector<std::string> kHosts{"north", "east", "south"};

class RankFailures : public ::testing::Test {
 protected:
  RankFailures() {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({3, 15, 30, 7, 23, 40, 1, 18})},
                                         {"valid", texts_of_lengths({20, 9, 4, 13})}});
    config_ = mechanism_config({"run.precision=f32", "run.threads=1", "data.rows=4", "model.position.kind=xl",
                                "model.attention.softmax.carry={kind: hidden, length: 6}",
                                "data.corpus=" + (folder_ / "corpus.h5").string(), "log.every=1", "evaluate.every=3",
                                "checkpoint.every=2", "schedule.steps=" + std::to_string(kSteps)});
  }
  RankRun run(const std::string& name, Ranks::Probe probe = {}) const {
    return {config_, folder_ / name, {.hosts = kHosts, .probe = std::move(probe)}};
  }
  // Returns the names of the operations of ranks, from the opening of a run to its end.
  std::set<std::string> operations() const {
    std::mutex mutex;
    std::set<std::string> names;
    train_until(run("whole",
                    [&](const RankActivity& activity) {
                      const std::lock_guard lock(mutex);
                      names.insert(activity.operation);
                    }),
                kRanks, kSteps);
    return names;
  }
  // The first step at which an operation is disturbed; none for what comes before the first step.
  static int64_t disturbed_step(const std::string& operation) {
    if (operation == "connecting the devices" || operation == "opening the run" ||
        operation == "verifying the corpus") {
      return 0;
    }
    return operation == "evaluating"                                                          ? 3
           : operation == "saving the checkpoint" || operation == "writing state and moments" ? 4
                                                                                              : 5;
  }
  static std::string failure_of(const RankRun& run) {
    try {
      train_until(run, kRanks, kSteps);
    } catch (const Error& error) {
      return fmt::format("{} {}", error.exit_code(), error.what());
    }
    return "it did not fail";
  }
  // A failed run is resumed on another number of ranks and reaches the same end.
  void expect_goes_on(const RankRun& failed) const {
    if (!std::filesystem::exists(failed.folder / "config.yaml")) return;  // it failed before there was a run
    RankRun rest = failed;
    rest.options = {};
    train_until(rest, 2, kSteps);
    const RankRunMetrics expected = metrics_of(folder_ / "whole");
    const RankRunMetrics got = metrics_of(failed.folder);
    ASSERT_EQ(got.losses.size(), expected.losses.size());
    for (const auto& [step, loss] : expected.losses) EXPECT_NEAR(got.losses.at(step), loss, 1e-5 * loss) << step;
    EXPECT_EQ(checkpoint_steps(failed.folder / "checkpoints").front(), kSteps);
  }

  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
  RunConfig config_;
};

std::string where(int rank, int64_t step, const std::string& operation) {
  const std::string at = step > 0 ? fmt::format(", step {}", step) : "";
  return fmt::format("rank {} on {}{}, {}", rank, kHosts[static_cast<size_t>(rank)], at, operation);
}

TEST_F(RankFailures, AThrowAtEveryOperationOfEveryRank) {
  const std::set<std::string> names = operations();
  EXPECT_GE(names.size(), 7U);
  for (const std::string& operation : names) {
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(fmt::format("{}, rank {}", operation, rank));
      const int64_t step = disturbed_step(operation);
      const RankRun failing = run(fmt::format("throw-{}-{}", operation, rank), [&](const RankActivity& activity) {
        if (activity.rank == rank && activity.operation == operation && activity.step >= step) {
          fail(ErrorKind::data, "injected");
        }
      });
      EXPECT_EQ(failure_of(failing), "3 " + where(rank, step, operation) + ": injected");
      expect_goes_on(failing);
    }
  }
}

TEST_F(RankFailures, AStallAtEveryOperationOfEveryRank) {
  for (const std::string& operation : operations()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE(fmt::format("{}, rank {}", operation, rank));
      const int64_t step = disturbed_step(operation);
      std::atomic<bool> reached = false;
      RankRun stalling = run(fmt::format("stall-{}-{}", operation, rank), [&](const RankActivity& activity) {
        if (activity.rank != rank || activity.operation != operation || activity.step < step || reached) return;
        reached = true;
        // Until the others have given it up; then it finds that the run is over.
        std::this_thread::sleep_for(std::chrono::milliseconds(800));
      });
      stalling.options.deadline = std::chrono::milliseconds(300);  // longer than a busy machine lets a thread wait
      const std::string failure = failure_of(stalling);
      EXPECT_TRUE(reached);
      EXPECT_TRUE(failure.starts_with(fmt::format("6 rank {} on {}", rank, kHosts[static_cast<size_t>(rank)])))
          << failure;
      EXPECT_NE(failure.find("it does not answer since 0.3 s (run.rank_timeout)"), std::string::npos) << failure;
      EXPECT_TRUE(failure.ends_with("what it said last: " + where(rank, step, operation))) << failure;
      expect_goes_on(stalling);
    }
  }
}

// The run goes on without that checkpoint, and nothing of it is left.
TEST_F(RankFailures, WhatOneRankCannotWriteIsAMatterOfAll) {
  for (const CheckpointErrorPolicy policy : {CheckpointErrorPolicy::warn, CheckpointErrorPolicy::stop}) {
    config_.checkpoint.on_error = policy;
    const bool warns = policy == CheckpointErrorPolicy::warn;
    const std::string name = warns ? "warned" : "stopped";
    // A folder stands where rank 2 writes its moments.
    const RankRun hindered = run(name, [&](const RankActivity& activity) {
      if (activity.rank != 2 || activity.operation != "writing state and moments" || activity.step != 2) return;
      std::filesystem::create_directory(folder_ / name / "checkpoints/.step-00000002.partial/optimizer-0002.h5");
    });
    if (warns) {
      train_until(hindered, kRanks, kSteps);
      EXPECT_EQ(checkpoint_steps(hindered.folder / "checkpoints"), (std::vector<int64_t>{6, 4}));
    } else {
      const std::string failure = failure_of(hindered);
      EXPECT_TRUE(failure.starts_with("7 " + where(2, 2, "writing state and moments") + ": ")) << failure;
      EXPECT_TRUE(std::filesystem::is_empty(hindered.folder / "checkpoints"));
    }
  }
}

// Ranks that were not started alike.
TEST_F(RankFailures, AnotherConfigurationOrFolderIsRefused) {
  const auto error_of = [&](const std::function<void(Ranks&)>& work) {
    try {
      run_in_process(2, work);
    } catch (const Error& error) {
      return fmt::format("{} {}", error.exit_code(), error.what());
    }
    return std::string("it did not fail");
  };
  const std::string seeds = error_of([&](Ranks& ranks) {
    RunConfig mine = config_;
    mine.run.seed = 1 + ranks.rank();
    Trainer::start(mine, folder_ / "seeds", ranks);
  });
  EXPECT_TRUE(seeds.starts_with("6 the configuration: rank 1 has ")) << seeds;
  EXPECT_TRUE(seeds.ends_with("start all ranks with the same program, files and options")) << seeds;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "seeds"));
  const std::string folders = error_of(
      [&](Ranks& ranks) { Trainer::start(config_, folder_ / (ranks.is_root() ? "mine" : "elsewhere"), ranks); });
  EXPECT_EQ(folders,
            fmt::format("7 {}: rank 0 has the run here, but this rank does not see it; put it on a file system "
                        "that all hosts share",
                        (folder_ / "elsewhere").string()));
}

TEST_F(RankFailures, WeightsThatDifferAreNeverSaved) {
  const std::unique_ptr<Corpus> corpus = Corpus::open(config_.data.corpus);
  try {
    run_in_process(2, [&](Ranks& ranks) {
      TrainingRun run(config_, *corpus, &ranks);
      run.step();
      const Tensor& weights = run.training().store.values();
      if (ranks.rank() == 1) weights.data<float>()[17] += 1e-3F;
      run.save(folder_ / "differ");
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
    EXPECT_TRUE(std::string(error.what()).starts_with("checksums of the weights: rank 1 has ")) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "differ"));
}

// checkpoint.on_error: warn is about disks.
TEST_F(RankFailures, WeightsThatDifferEndARunThatGoesOnWithoutCheckpoints) {
  RunConfig config = config_;
  config.checkpoint.on_error = CheckpointErrorPolicy::warn;
  try {
    run_in_process(2, [&](Ranks& ranks) {
      const std::unique_ptr<Trainer> trainer = Trainer::start(config, folder_ / "differ", ranks);
      trainer->run([&]() -> std::string {
        if (ranks.rank() == 1 && trainer->training().step == 2) {
          trainer->training().store.values().data<float>()[17] += 1e-3F;
        }
        return "";
      });
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
    EXPECT_NE(std::string(error.what()).find("checksums of the weights: rank 1 has "), std::string::npos)
        << error.what();
  }
}

// Ranks wait for each other as long as the run says, also while its checkpoint is verified.
TEST_F(RankFailures, TheTimeoutOfTheRunHoldsFromTheStart) {
  RunConfig config = config_;
  config.run.rank_timeout.seconds = 1234;
  run_in_process(2, [&](Ranks& ranks) {
    const std::unique_ptr<Trainer> trainer = Trainer::start(config, folder_ / "slow", ranks);
    trainer->run([&]() -> std::string { return trainer->training().step == 2 ? "the test asks to stop" : ""; });
  });
  const auto deadlines = [&](const std::filesystem::path& given, const std::vector<std::string>& overrides) {
    std::mutex mutex;
    std::set<int64_t> seconds;
    const auto look = [&](const RankActivity& activity) {
      if (activity.operation != "verifying the checkpoint") return;
      const std::lock_guard lock(mutex);
      seconds.insert(Ranks::current().control().deadline().count() / 1000);
    };
    run_in_process(2, [&](Ranks& ranks) { Trainer::resume(given, {.overrides = overrides}, ranks); }, {.probe = look});
    return seconds;
  };
  EXPECT_EQ(deadlines(folder_ / "slow", {}), std::set<int64_t>{1234});
  EXPECT_EQ(deadlines(folder_ / "slow/checkpoints/step-00000002", {}), std::set<int64_t>{1234});
  EXPECT_EQ(deadlines(folder_ / "slow/checkpoints/", {"run.rank_timeout=2h"}), std::set<int64_t>{7200});
}

// run.on_nonfinite: stop. What one rank meets, all refuse, and no weight has changed.
TEST_F(RankFailures, ANonFiniteLossOfOneRankStopsAllWithTheSameWords) {
  const std::unique_ptr<Corpus> corpus = Corpus::open(config_.data.corpus);
  std::array<std::string, 3> said;
  std::array<std::vector<float>, 3> weights;
  run_in_process(3, [&](Ranks& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    TrainingRun run(config_, *corpus, &ranks);
    run.step();
    for (const NamedTensor& state : run.training().state->tensors()) {
      if (ranks.rank() != 1 || !is_floating(state.tensor.dtype())) continue;
      std::vector<float> values(static_cast<size_t>(state.tensor.numel()), std::numeric_limits<float>::quiet_NaN());
      state.tensor.upload(values.data(), state.tensor.numel());
    }
    try {
      for (int step = 0; step < 20; ++step) {
        weights[rank] = run.training().store.values().to_vector<float>();
        run.step();
      }
    } catch (const Error& error) {
      said[rank] = fmt::format("{} {}", error.exit_code(), error.what());
    }
    EXPECT_EQ(run.training().store.values().to_vector<float>(), weights[rank]);
  });
  EXPECT_TRUE(said[0].starts_with("5 step ")) << said[0];
  EXPECT_EQ(said[1], said[0]);
  EXPECT_EQ(said[2], said[0]);
  EXPECT_EQ(weights[1], weights[0]);
}

// ZeRO-1: what each rank keeps of the moments, by plan and by count.
TEST_F(RankFailures, MomentsAreSharedOut) {
  for (const char* optimizer : {"{kind: adamw}", "{kind: adafactor, momentum: 0.9}", "{kind: muon}"}) {
    RunConfig config = mechanism_config({"run.precision=f32", "data.rows=4", "model.width=64", "model.layers=4",
                                         "data.vocabulary=300", std::string("optimizer=") + optimizer});
    const Machine machine = Machine::choose(config.run);
    const TrainingState one(config, 300, machine);
    const Plan alone = make_plan(config, 1, 1);
    for (const int ranks : {2, 3, 4}) {
      int64_t sum = 0;
      int64_t max_bytes = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TrainingState mine(config, 300, machine, {rank, ranks});
        sum += mine.optimizer->bytes();
        max_bytes = std::max(max_bytes, mine.optimizer->bytes());
      }
      const Plan plan = make_plan(config, ranks, 1);
      EXPECT_EQ(plan.moments, max_bytes) << optimizer;
      EXPECT_EQ(plan.checkpoint, alone.checkpoint) << optimizer;  // the checkpoint on disk does not depend on the ranks
      EXPECT_EQ(sum, one.optimizer->bytes()) << optimizer;
      EXPECT_LE(max_bytes, one.optimizer->bytes() / ranks *
                               (std::string_view(optimizer).find("adamw") != std::string_view::npos ? 11 : 20) / 10)
          << optimizer;
    }
  }
}

}  // namespace
}  // namespace quire::test
