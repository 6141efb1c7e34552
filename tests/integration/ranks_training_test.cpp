// Tests training on several ranks through the program: kills, signals, one run directory that only root writes.
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/on_ranks.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

constexpr int kRanks = 3;

bool holds_unfinished(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().front() == '.') return true;
  }
  return false;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// QUIRE_TEST_KILLS kills, while ranks write their files of a checkpoint or root puts them in place; more of them, up to
// three times as many, while too few came in time on a busy machine.
TEST(RanksTraining, KilledWhileTheySaveTheyLoseNothing) {
  const char* const given = std::getenv("QUIRE_TEST_KILLS");
  const int kills = given == nullptr ? 6 : std::atoi(given);
  const TinyRun tiny;
  const std::string steps = "schedule.steps=" + std::to_string(60 + 36 * kills);
  ASSERT_EQ(on_ranks(kRanks, tiny.train_arguments("whole", {steps, "checkpoint.every=0"})).code, 0);
  std::mt19937 random(7);
  int64_t furthest = 0;
  int unfinished = 0;
  for (int round = 0; round < kills || (round < 3 * kills && unfinished <= kills / 3); ++round) {
    SCOPED_TRACE(round);
    RunningProgram program(round == 0
                               ? tiny.train_arguments("killed", {steps, "checkpoint.every=1", "checkpoint.keep=2"})
                               : tiny.resume_arguments(tiny / "killed"),
                           options_of_ranks(kRanks));
    const std::filesystem::path folder = tiny / "killed/checkpoints";
    // A few checkpoints further, then inside of one.
    const int64_t expected = furthest + 1 + static_cast<int64_t>(random() % 4);
    const auto newest = [&] {
      const std::vector<int64_t> saved = checkpoint_steps(folder);
      return saved.empty() ? 0 : saved.front();
    };
    while (newest() < expected && program.running()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    while (!holds_unfinished(folder) && program.running()) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ASSERT_TRUE(program.running()) << program.wait().err;
    program.send(SIGKILL);
    EXPECT_EQ(program.wait().signal, SIGKILL);
    unfinished += holds_unfinished(folder) ? 1 : 0;
    EXPECT_GE(newest(), expected) << "a finished checkpoint was lost";
    for (const int64_t step : checkpoint_steps(folder)) {
      EXPECT_NO_THROW(CheckpointReader::open(tiny.checkpoint("killed", step)));
    }
    furthest = newest();
  }
  EXPECT_GT(unfinished, kills / 3) << "too few kills came while a checkpoint was written";
  const ProgramResult finished = on_ranks(kRanks, tiny.resume_arguments(tiny / "killed", {"checkpoint.every=0"}));
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(comparable_metrics(tiny / "whole"), comparable_metrics(tiny / "killed"));
  const int64_t last = checkpoint_steps(tiny / "whole/checkpoints").front();
  expect_same_checkpoint(tiny.checkpoint("whole", last), tiny.checkpoint("killed", last));
  RecordProperty("kills", kills);
  RecordProperty("unfinished", unfinished);
}

TEST(RanksTraining, ASignalStopsAllAndAnotherNumberGoesOn) {
  const TinyRun tiny;
  const std::vector<std::string> options{"schedule.steps=2000", "checkpoint.every=0"};
  std::vector<std::string> arguments = tiny.train_arguments("run", options);
  int64_t before = 0;
  for (const auto& [ranks, signal] : {std::pair{2, SIGTERM}, std::pair{3, SIGUSR1}, std::pair{1, SIGINT}}) {
    RunningProgram program(arguments, options_of_ranks(ranks));
    const std::filesystem::path metrics = tiny / "run/metrics.jsonl";
    while (static_cast<int64_t>(lines_of(metrics).size()) < before + 10 && program.running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    program.send(signal);
    const ProgramResult result = program.wait();
    ASSERT_EQ(result.code, 75) << result.err;
    EXPECT_TRUE(result.errors().empty()) << result.err;
    before = static_cast<int64_t>(lines_of(metrics).size());
    // There is one line per step, and one file of every kind per rank.
    EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), std::vector<int64_t>{before});
    const CheckpointReader reader = CheckpointReader::open(tiny.checkpoint("run", before));
    EXPECT_EQ(reader.meta().at("ranks"), ranks);
    int64_t moments = 0;
    for (const std::string& part : reader.parts()) moments += part.starts_with("optimizer") ? 1 : 0;
    EXPECT_EQ(moments, ranks);
    // Inspection counts what all ranks have.
    const ProgramResult inspected = run_quire({"inspect", tiny.checkpoint("run", before).string(), "--json"});
    ASSERT_EQ(inspected.code, 0) << inspected.err;
    const auto json = nlohmann::json::parse(inspected.out);
    EXPECT_EQ(json["optimizer"]["bytes"], 2 * json["parameters"]["bytes"].get<int64_t>());
    EXPECT_EQ(json["state"]["rows"].size(), 3U);
    arguments = tiny.resume_arguments(tiny / "run", {"checkpoint.keep=1"});
  }
  // Every rank says things, and each is said once.
  std::vector<std::string> starts;
  for (const std::string& line : lines_of(tiny / "run/log.txt")) {
    if (line.find("going on from step") != std::string::npos) starts.push_back(line);
  }
  EXPECT_EQ(starts.size(), 2U);
}

TEST(RanksTraining, MoreRanksThanRowsStillTrain) {
  const TinyRun tiny;
  ASSERT_EQ(on_ranks(1, tiny.train_arguments("one")).code, 0);
  const ProgramResult many = on_ranks(5, tiny.train_arguments("many"), "a,b,a,b,c");
  ASSERT_EQ(many.code, 0) << many.err;
  const auto one = read_metrics(tiny / "one/metrics.jsonl");
  const auto five = read_metrics(tiny / "many/metrics.jsonl");
  ASSERT_EQ(one.size(), five.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_NEAR(five[i].at("loss").get<double>(), one[i].at("loss").get<double>(), 1e-4) << i;
  }
}

}  // namespace
}  // namespace quire::test
