// run.products: who times, and who takes what was timed.
#include "trainers/run/product_choice.h"

#include <gtest/gtest.h>

#include "core/ranks/in_process.h"
#include "tests/support/expect_error.h"
#include "trainers/plan/random_batch.h"

namespace quire::test {
namespace {

constexpr const char* kConfig = R"(
run: {name: choice, precision: f32, device: cpu}
data: {subsequence: 8, rows: 3}
model: {width: 8, layers: 1, heads: 2, position: {kind: none}}
)";

RunConfig config(const std::vector<std::string>& settings = {"run.products=timed"}) {
  return parse_config<RunConfig>(kConfig, "choice.yaml", settings);
}

// A device of one rank that has a choice, and what it was asked for.
class ChoosingDevice : public DeviceBackend {
 public:
  ChoosingDevice(int rank, std::string version) : rank_(rank), version_(std::move(version)) {}

  std::string name() const override { return "choosing"; }
  Allocator& allocator() override { return cpu().allocator(); }
  Memory memory() const override { return cpu().memory(); }
  void copy_to_host(void* host, const void* device, size_t bytes) override { cpu().copy_to_host(host, device, bytes); }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    cpu().copy_from_host(device, host, bytes);
  }
  void copy_within(void* to, const void* from, size_t bytes) override { cpu().copy_within(to, from, bytes); }
  void zero(void* device, size_t bytes) override { cpu().zero(device, bytes); }
  void synchronize() override {}

  std::string kernel_choices() const override { return choices_; }
  bool use_kernel_choices(const std::string& choices) override {
    if (!choices.starts_with(version_)) return choices.empty();
    choices_ = choices;
    return true;
  }
  std::vector<std::string> measure_kernels(const std::function<void()>& work) override {
    ++measured;
    work();
    choices_ = version_ + "\ntimed by rank " + std::to_string(rank_);
    return {"timed"};
  }

  int measured = 0;

 private:
  static DeviceBackend& cpu() { return device_backend(DeviceKind::cpu); }
  int rank_;
  std::string version_;
  std::string choices_;
};

struct RankOfRun {
  TrainingState training;
  Batch batch;

  RankOfRun(const RunConfig& config, const Ranks& ranks)
      : training(config, 258, {.device = kCpu, .dtype = DType::f32, .backend = "cpu"}, {ranks.rank(), ranks.size()}),
        batch(batch_of(config)) {}

  Batch batch_of(const RunConfig& config) const {
    DataConfig data = config.data;
    data.rows = training.last_row - training.first_row;
    return random_batch(data, 258, {}, 0);
  }
};

TEST(ProductChoice, IsMadeByRootForAllRanks) {
  run_in_process(3, [](Ranks& ranks) {
    RankOfRun run(config(), ranks);
    ChoosingDevice device(ranks.rank(), "library 1");
    const auto choose = [&] { return choose_products(run.training, config(), run.batch, device, ranks); };
    EXPECT_EQ(choose(), ranks.is_root() ? std::vector<std::string>{"timed"} : std::vector<std::string>());
    EXPECT_EQ(device.measured, ranks.is_root() ? 1 : 0);
    EXPECT_EQ(device.kernel_choices(), "library 1\ntimed by rank 0");
    EXPECT_EQ(run.training.timed, "1 rows of 8 tokens in 1 passes");
    // As after a checkpoint.
    choose();
    EXPECT_EQ(device.measured, ranks.is_root() ? 1 : 0);
  });
}

TEST(ProductChoice, RanksWithAnotherLibraryAreTold) {
  const auto train = [] {
    run_in_process(2, [](Ranks& ranks) {
      RankOfRun run(config(), ranks);
      ChoosingDevice device(ranks.rank(), ranks.is_root() ? "library 1" : "library 2");
      choose_products(run.training, config(), run.batch, device, ranks);
    });
  };
  EXPECT_ERROR(
      train(), ErrorKind::config,
      "run.products: timed: this rank has another GPU or version of cuBLASLt than rank 0 (library 1); use first");
}

TEST(ProductChoice, WithoutAChoiceTheLogSaysSo) {
  Ranks one;
  RankOfRun run(config(), one);
  DeviceBackend& cpu = device_backend(DeviceKind::cpu);
  EXPECT_EQ(choose_products(run.training, config(), run.batch, cpu, one),
            std::vector<std::string>{"products: the run computes on no GPU, so that there is nothing to time"});
  EXPECT_EQ(run.training.timed, "");
  EXPECT_TRUE(choose_products(run.training, config({}), run.batch, cpu, one).empty());
}

// Gradients leave for other ranks in steps alone.
TEST(ProductChoice, ARehearsalTalksToNobody) {
  run_in_process(2, [](Ranks& ranks) {
    RankOfRun run(config(), ranks);
    const int64_t before = ranks.collectives().finished();
    if (ranks.is_root()) rehearse_step(run.training, config(), run.batch);
    EXPECT_EQ(ranks.collectives().finished(), before);
  });
}

}  // namespace
}  // namespace quire::test
