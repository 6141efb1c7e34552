// Whole runs of a mechanism on any number of ranks: opening, training, evaluation, checkpoints, going on with another
// number of ranks.
#include <cmath>
#include <cstdlib>

#include "tests/support/mechanism_suite.h"
#include "tests/support/rank_runs.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/tiny_run.h"

namespace quire::test {

namespace {

// Each number of ranks goes on from another one. With pack: pad, and everywhere with QUIRE_TEST_LONG in the
// environment, all twelve ordered pairs follow each other.
const std::vector<int>& rank_order(Pack pack) {
  static const std::vector<int> pairs{2, 3, 1, 4, 2};
  static const std::vector<int> all_pairs{1, 2, 3, 4, 1, 3, 1, 4, 2, 4, 3, 2, 1};
  return pack == Pack::pad || std::getenv("QUIRE_TEST_LONG") != nullptr ? all_pairs : pairs;
}
constexpr int64_t kLeg = 2;  // steps

class RankFolder {
 public:
  RankFolder() {
    write_corpus(folder_ / "corpus.h5", {{"train", texts_of_lengths({3, 15, 30, 7, 23, 40, 1, 18, 55, 12})},
                                         {"valid", texts_of_lengths({20, 9, 4, 13, 6})}});
  }
  // Logs every step, evaluates now and then.
  RankRun run(RunConfig config, const std::string& name) const {
    config.data.corpus = (folder_ / "corpus.h5").string();
    config.run.threads = 1;
    config.log.every = 1;
    config.evaluate.every = 7;
    config.evaluate.rows = 3;
    config.checkpoint.every = 0;
    config.schedule.steps = kLeg * static_cast<int64_t>(rank_order(config.data.pack).size());
    return {config, folder_ / name};
  }

 private:
  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
};

void expect_near(const std::map<int64_t, double>& got, const std::map<int64_t, double>& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, value] : expected) {
    ASSERT_TRUE(got.contains(step)) << step;
    EXPECT_NEAR(got.at(step), value, tolerance * std::abs(value)) << "step " << step;
  }
}

bool stores_short_numbers(const MechanismCase& mechanism) {
  for (const std::string& setting : mechanism.settings) {
    if (setting.find("dtype: ") != std::string::npos) return true;
  }
  return false;
}

std::filesystem::path last_checkpoint(const RankRun& run) {
  return run.folder / "checkpoints" / ("step-000000" + std::to_string(run.config.schedule.steps));
}

}  // namespace

// The optimizer's epsilon is the shipped one. There are four rows with one way to pack, and with the other five, which
// several ranks share unevenly. Those run in f32. There the order of sums decides which of two
// nearly equal entries is selected, and another loss follows, so a new order may need another seed.
TEST_P(MechanismRanks, EveryNumberGoesOnFromEveryOther) {
  if (!(test_device() == kCpu)) GTEST_SKIP() << "ranks that are threads share no GPU";
  const RankFolder folder;
  const bool is_even = GetParam().pack == Pack::concat || !GetParam().mechanism.concat;
  const bool wide = is_even;
  const RunConfig run_config =
      config({wide ? "run.precision=f64" : "run.precision=f32", is_even ? "data.rows=4" : "data.rows=5"});
  const RankRun one = folder.run(run_config, "one");
  train_until(one, 1, one.config.schedule.steps);
  const RankRun many = folder.run(run_config, "many");
  int64_t step = 0;
  for (const int ranks : rank_order(GetParam().pack)) train_until(many, ranks, step += kLeg);
  const RankRunMetrics expected = metrics_of(one.folder);
  const RankRunMetrics got = metrics_of(many.folder);
  ASSERT_EQ(expected.losses.size(), static_cast<size_t>(one.config.schedule.steps));
  // For numbers stored in eight or sixteen bits, a different rounding in f32 may give the next number of the stored
  // type, which is up to an eighth larger.
  const double tolerance = wide ? 1e-12 : stores_short_numbers(GetParam().mechanism) ? 2e-3 : 1e-5;
  expect_near(got.losses, expected.losses, tolerance);
  expect_near(got.evaluations, expected.evaluations, tolerance);
  EXPECT_EQ(got.telemetry, expected.telemetry);  // telemetry of any rank is telemetry of one rank
  // No document was lost or read twice: all rows stand where they would.
  EXPECT_EQ(CheckpointReader::open(last_checkpoint(one)).meta().at("cursor"),
            CheckpointReader::open(last_checkpoint(many)).meta().at("cursor"));
}

TEST_P(MechanismRanks, ResumedOnAsManyItIsTheSameBitForBit) {
  if (!(test_device() == kCpu)) GTEST_SKIP() << "ranks that are threads share no GPU";
  const RankFolder folder;
  const RunConfig run_config = config({"run.precision=f32", "data.rows=4", "data.accumulate=2"});
  const std::vector<int> numbers = GetParam().pack == Pack::pad ? std::vector<int>{3} : std::vector<int>{2, 4};
  for (const int ranks : numbers) {
    RankRun straight = folder.run(run_config, "straight-" + std::to_string(ranks));
    RankRun stopped = folder.run(run_config, "stopped-" + std::to_string(ranks));
    for (RankRun* run : {&straight, &stopped}) {
      run->config.schedule.steps = 10;
      run->config.checkpoint.every = 3;
    }
    train_until(straight, ranks, 10);
    for (const int64_t step : {4, 10}) train_until(stopped, ranks, step);
    EXPECT_EQ(comparable_metrics(straight.folder), comparable_metrics(stopped.folder)) << ranks;
    expect_same_checkpoint(last_checkpoint(straight), last_checkpoint(stopped));
  }
}

}  // namespace quire::test
