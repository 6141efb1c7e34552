// Compares the exchanges of a step in a plan with those of a run on ranks.
#include "trainers/plan/step_exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "core/ranks/in_process.h"
#include "tests/support/tiny_run.h"
#include "trainers/run/trainer.h"

namespace quire::test {
namespace {

struct Counts {
  int64_t scatters = 0;
  int64_t gathers = 0;
  int64_t sums = 0;
  int64_t host = 0;
  int64_t gradient_bytes = 0;  // bytes that the rank sends: the parts of the others
  int64_t weight_bytes = 0;    // bytes that the rank receives, which is the same over all ranks
  int64_t sum_bytes = 0;       // bytes of the tensors
};

// Counts the exchanges of a rank in each step. Calls are passed on to the real ranks.
struct StepCounts {
  int64_t step = 0;
  std::map<int64_t, Counts> of;
  Counts& now() { return of[step]; }
};

class CountedControl : public Control {
 public:
  CountedControl(Control& control, StepCounts& counts) : control_(control), counts_(counts) {}
  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  std::string host() const override { return control_.host(); }
  std::vector<std::string> gather(const std::string& mine) override {
    ++counts_.now().host;
    return control_.gather(mine);
  }
  std::string broadcast(const std::string& text, int from) override {
    ++counts_.now().host;
    return control_.broadcast(text, from);
  }
  void barrier() override {
    ++counts_.now().host;
    control_.barrier();
  }
  void reduce(Reduction reduction, std::span<double> values) override {
    ++counts_.now().host;
    control_.reduce(reduction, values);
  }
  void set_deadline(std::chrono::milliseconds deadline) override { control_.set_deadline(deadline); }
  std::chrono::milliseconds deadline() const override { return control_.deadline(); }
  void set_activity(const RankActivity& activity) override {
    counts_.step = activity.step;
    control_.set_activity(activity);
  }
  bool fail(ErrorKind kind, const std::string& message) override { return control_.fail(kind, message); }
  void check() const override { control_.check(); }
  void overdue(int64_t begun) override { control_.overdue(begun); }

 private:
  Control& control_;
  StepCounts& counts_;
};

class CountedCollectives : public Collectives {
 public:
  CountedCollectives(Ranks& ranks, StepCounts& counts) : ranks_(ranks), counts_(counts) {}
  void all_reduce(const Tensor& values) override {
    ++counts_.now().sums;
    counts_.now().sum_bytes += values.bytes();
    ranks_.collectives().all_reduce(values);
  }
  void reduce_scatter(const Tensor& values, const PartBounds& bounds) override {
    ++counts_.now().scatters;
    counts_.now().gradient_bytes += of_others(values, bounds);
    ranks_.collectives().reduce_scatter(values, bounds);
  }
  void all_gather(const Tensor& values, const PartBounds& bounds) override {
    ++counts_.now().gathers;
    counts_.now().weight_bytes += of_others(values, bounds);
    ranks_.collectives().all_gather(values, bounds);
  }
  void wait() override { ranks_.collectives().wait(); }
  int64_t finished() const override { return ranks_.collectives().finished(); }

 private:
  int64_t of_others(const Tensor& values, const PartBounds& bounds) const {
    const auto rank = static_cast<size_t>(ranks_.rank());
    return (bounds.back() - bounds.front() - bounds[rank + 1] + bounds[rank]) *
           static_cast<int64_t>(size_of(values.dtype()));
  }
  Ranks& ranks_;
  StepCounts& counts_;
};

struct ExchangeCase {
  std::string name;
  std::vector<std::string> settings;
};

class ExchangeOfARun : public ::testing::TestWithParam<ExchangeCase> {};

TEST_P(ExchangeOfARun, IsWhatIsPlanned) {
  const TinyRun tiny;
  std::vector<std::string> settings = GetParam().settings;
  for (const char* setting : {"schedule.steps=6", "schedule.warmup=0", "checkpoint.every=0", "log.every=2"}) {
    settings.emplace_back(setting);
  }
  const RunConfig config = load_config<RunConfig>(tiny.config(), settings);
  const StepExchanges planned(config);
  for (const int ranks : {2, 3}) {
    std::mutex mutex;
    std::vector<StepCounts> all;
    run_in_process(ranks, [&](Ranks& mine) {
      StepCounts counts;
      Ranks counted(std::make_unique<CountedControl>(mine.control(), counts),
                    std::make_unique<CountedCollectives>(mine, counts));
      Trainer::start(config, tiny / ("run" + std::to_string(ranks)), counted)->run([] { return std::string(); });
      const std::lock_guard lock(mutex);
      all.push_back(counts);
    });
    const StepExchange exchange = planned.of(ranks);
    EXPECT_GT(exchange.buckets.size(), 0U);
    // The first step learns the order of buckets, and the last one saves a checkpoint.
    for (int64_t step = 2; step < 6; ++step) {
      Counts sent;
      for (StepCounts& of_rank : all) {
        const Counts& counts = of_rank.of.at(step);
        EXPECT_EQ(counts.scatters, static_cast<int64_t>(exchange.buckets.size()));
        EXPECT_EQ(counts.gathers, static_cast<int64_t>(exchange.buckets.size()));
        EXPECT_EQ(counts.sums, static_cast<int64_t>(exchange.sums.size()));
        EXPECT_EQ(counts.scatters + counts.gathers + counts.sums, exchange.collectives());
        EXPECT_EQ(counts.host, exchange.host_exchanges + (step % 2 == 0 ? exchange.host_exchanges_logged : 0)) << step;
        sent.gradient_bytes += counts.gradient_bytes;
        sent.weight_bytes += counts.weight_bytes;
        sent.sum_bytes += counts.sum_bytes;
      }
      const auto total = [&](double of_rank) { return of_rank * ranks; };
      EXPECT_NEAR(total(exchange.gradient_bytes()), static_cast<double>(sent.gradient_bytes), 1e-3);
      EXPECT_NEAR(total(exchange.weight_bytes()), static_cast<double>(sent.weight_bytes), 1e-3);
      // A part of a sum goes to every other rank, and comes back summed.
      EXPECT_NEAR(exchange.sum_bytes(), 2.0 * (ranks - 1) / ranks * static_cast<double>(sent.sum_bytes) / ranks, 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(StepExchange, ExchangeOfARun,
                         ::testing::Values(ExchangeCase{"transformer_xl", {}},
                                           ExchangeCase{"learners",
                                                        {"model.attention={kind: vq, vq: "
                                                         "{window: 8, codes: 8, block: 8}}"}},
                                           ExchangeCase{"whole_parameters",
                                                        {"optimizer.kind=adafactor", "data.accumulate=2"}},
                                           ExchangeCase{"f64", {"run.precision=f64"}}),
                         [](const auto& test) { return test.param.name; });

// Rank 0 waits in every step for rank 1, which begins to compute late.
TEST(StepExchange, ARunSaysHowLongItWaits) {
  const TinyRun tiny;
  const auto exchange_ms = [&](int ranks) {
    const std::filesystem::path folder = tiny / std::to_string(ranks);
    InProcessOptions options;
    options.probe = [](const RankActivity& activity) {
      if (activity.rank == 1 && activity.operation == "computing gradients") {
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
      }
    };
    run_in_process(
        ranks,
        [&](Ranks& mine) {
          const RunConfig config = load_config<RunConfig>(tiny.config(), {"schedule.steps=5", "log.every=2"});
          Trainer::start(config, folder, mine)->run([] { return std::string(); });
        },
        options);
    std::vector<double> values;
    for (const nlohmann::ordered_json& line : read_metrics(folder / "metrics.jsonl")) {
      if (!line.contains("exchange_ms")) continue;
      values.push_back(line.at("exchange_ms"));
      EXPECT_LT(values.back(), line.at("step_ms"));
    }
    return values;
  };
  EXPECT_EQ(exchange_ms(1).size(), 0U);
  const std::vector<double> waited = exchange_ms(2);
  EXPECT_EQ(waited.size(), 3U);  // for two, two and one steps
  for (const double of_step : waited) EXPECT_GT(of_step, 30);
}

TEST(StepExchange, PartsOfABucketFillIt) {
  const TinyRun tiny;
  for (const std::string kind : {"adamw", "adafactor", "muon"}) {
    const StepExchanges exchanges(load_config<RunConfig>(tiny.config(), {"optimizer.kind=" + kind}));
    EXPECT_EQ(exchanges.of(1).collectives(), 0);
    int64_t arena = 0;
    for (const int64_t ranks : {2, 8, 512}) {
      const StepExchange exchange = exchanges.of(ranks);
      for (const StepExchange::Bucket& bucket : exchange.buckets) {
        EXPECT_LE(bucket.min_part * ranks, bucket.bytes);
        EXPECT_GE(bucket.max_part * ranks, bucket.bytes);
      }
      if (arena == 0) arena = exchange.arena_bytes();
      EXPECT_EQ(exchange.arena_bytes(), arena);
      EXPECT_NEAR(exchange.gradient_bytes() / static_cast<double>(arena), 1 - 1.0 / static_cast<double>(ranks), 1e-9);
    }
  }
}

}  // namespace
}  // namespace quire::test
