// Tests that ranks that are processes give the same bits as ranks that are threads.
#include <fmt/format.h>

#include "core/ranks/processes/rank_process.h"
#include "tests/support/mpirun.h"
#include "tests/support/on_ranks.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

nlohmann::json without_times(const std::string& json) {
  nlohmann::json object = nlohmann::json::parse(json);
  for (const char* key : {"seconds", "resident_bytes"}) object.erase(key);
  return object;
}

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_mpirun(); !missing.empty()) GTEST_SKIP() << missing;
  }
  const TinyRun tiny_;
};

TEST_F(Mpirun, TrainsAsThreadsDoBitForBit) {
  for (const int ranks : {2, 4}) {
    const std::string threads = "threads-" + std::to_string(ranks);
    const std::string processes = "processes-" + std::to_string(ranks);
    ASSERT_EQ(on_ranks(ranks, tiny_.train_arguments(threads)).code, 0);
    const ProgramResult result = under_mpirun(ranks, tiny_.train_arguments(processes));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.err.find(fmt::format("{0} ranks ({0} on ", ranks)), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(" over " + find_mpi().version + "; rank 0 has "), std::string::npos) << result.err;
    EXPECT_EQ(comparable_metrics(tiny_ / threads), comparable_metrics(tiny_ / processes)) << ranks;
    expect_same_checkpoint(tiny_.checkpoint(threads, 20), tiny_.checkpoint(processes, 20));
  }
}

TEST_F(Mpirun, AnotherNumberGoesOn) {
  const std::string one = "schedule.steps=30";
  ASSERT_EQ(tiny_.train("straight", {one}).code, 0);
  std::vector<std::string> arguments = tiny_.train_arguments("run", {one, "checkpoint.every=0"});
  for (const auto& [ranks, step] : {std::pair{4, 6}, std::pair{2, 12}, std::pair{3, 20}}) {
    MpirunOptions stops;
    stops.misbehaves = std::to_string(ranks - 1) + ":" + std::to_string(step) + ":asking whether to stop:10";
    const ProgramResult result = under_mpirun(ranks, arguments, stops);
    ASSERT_EQ(result.code, 75) << result.err;
    EXPECT_EQ(CheckpointReader::open(tiny_.checkpoint("run", step)).meta().at("ranks"), ranks);
    arguments = tiny_.resume_arguments(tiny_ / "run");
  }
  ASSERT_EQ(tiny_.resume("run").code, 0);
  const auto straight = read_metrics(tiny_ / "straight/metrics.jsonl");
  const auto moved = read_metrics(tiny_ / "run/metrics.jsonl");
  ASSERT_EQ(straight.size(), moved.size());
  for (size_t i = 0; i < straight.size(); ++i) {
    const auto loss = straight[i].at("loss").get<double>();
    EXPECT_NEAR(moved[i].at("loss").get<double>(), loss, 1e-5 * loss) << i;
  }
}

TEST_F(Mpirun, EveryVerbSaysThingsOnce) {
  ASSERT_EQ(tiny_.train("run", {"schedule.steps=4"}).code, 0);
  const std::string run = (tiny_ / "run").string();
  const std::vector<std::vector<std::string>> commands{
      {"eval", run, "--documents", "--json"},
      {"needle", run, "--lengths", "128", "--depths", "0,1", "--samples", "2", "--set", "key=1", "--json"},
      {"generate", run, "--prompt", "abc", "--length", "30", "--seed", "5"},
      {"plan", tiny_.config().string(), "data.corpus=" + tiny_.corpus().string()},
      {"config", tiny_.config().string()}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult one = run_quire(command);
    const ProgramResult three = under_mpirun(3, command);
    EXPECT_EQ(three.code, 0) << three.err;
    if (command.back() == "--json") {
      EXPECT_EQ(without_times(three.out), without_times(one.out));
    } else {
      EXPECT_EQ(three.out, one.out) << command[0];
    }
  }
  const ProgramResult version = under_mpirun(2, {"--version"});
  EXPECT_EQ(version.out, run_quire({"--version"}).out);
  EXPECT_NE(version.out.find("mpirun: that of "), std::string::npos) << version.out;
}

TEST_F(Mpirun, ErrorsAreSaidOnceWithTheirCode) {
  const auto expect_error = [](const ProgramResult& result, int code, const std::string& text) {
    EXPECT_EQ(result.code, code) << result.err;
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    EXPECT_NE(result.errors()[0].find(text), std::string::npos) << result.err;
  };
  expect_error(under_mpirun(3, {"evil"}), 2, "'evil' is no verb of quire; did you mean eval?");
  expect_error(under_mpirun(3, tiny_.train_arguments("run", {"model.heats=1"})), 2, "unknown key");
  EXPECT_FALSE(std::filesystem::exists(tiny_ / "run"));
  expect_error(under_mpirun(2, {"eval", (tiny_ / "nothing").string()}), 4, "nothing: no such folder");
  std::string corpus = read_text(tiny_.corpus());
  corpus[corpus.size() / 2] ^= 4;
  write_text(tiny_.corpus(), corpus);
  expect_error(under_mpirun(3, tiny_.train_arguments("run")), 3, "corpus.h5: checksum");
}

// The launcher of another MPI starts programs that do not see each other.
TEST_F(Mpirun, AnotherLauncherIsTold) {
  ProgramOptions options;
  options.environment = {{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}};
  // The first one that ends makes the launcher end the others, so rank 0 comes first.
  ProgramOptions second = options;
  second.environment[1].second = "1";
  RunningProgram other(tiny_.train_arguments("run"), second);
  const ProgramResult result = run_quire(tiny_.train_arguments("run"), options);
  EXPECT_TRUE(other.running());
  EXPECT_EQ(result.code, 6) << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.err.find("mpirun of MPICH or a relative (PMI_SIZE=3) has started 3 ranks, but this program is built "
                            "with "),
            std::string::npos)
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(tiny_ / "run"));
}

// Without MPI ranks meet in a file: verbs that need no sums of tensors work, and training on the CPU is refused.
TEST(RanksInAFile, MeetAndSayWhatTheyCannot) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=4"}).code, 0);
  const auto meet = [&](const std::vector<std::string>& arguments) {
    const auto options = [&](int rank) {
      ProgramOptions one;
      one.environment = {
          {"QUIRE_RENDEZVOUS", (tiny / "meet").string()}, {"QUIRE_RANK", std::to_string(rank)}, {"QUIRE_RANKS", "2"}};
      return one;
    };
    write_text(tiny / "meet", R"({"addresses": ["127.0.0.1"], "port": 9, "token": "left by an earlier start"})");
    RunningProgram other(arguments, options(1));
    const ProgramResult root = run_quire(arguments, options(0));
    EXPECT_EQ(other.wait().code, root.code);
    EXPECT_EQ(other.wait().out, "");
    EXPECT_EQ(other.wait().errors().size() + root.errors().size(), root.code == 0 ? 0U : 1U);
    EXPECT_FALSE(std::filesystem::exists(tiny / "meet"));
    return root;
  };
  const std::vector<std::string> eval{"eval", (tiny / "run").string(), "--split", "train", "--documents", "--json"};
  const ProgramResult two = meet(eval);
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_EQ(without_times(two.out), without_times(run_quire(eval).out));
  const ProgramResult refused = meet(tiny.train_arguments("two"));
  EXPECT_EQ(refused.code, 2);
  EXPECT_FALSE(std::filesystem::exists(tiny / "two"));
}

// A rank that waits for the file is stopped for longer than it may wait, and goes on waiting.
TEST(RanksInAFile, TimeInWhichARankIsStoppedDoesNotCount) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::vector<std::string> eval{"eval", (tiny / "run").string(), "--split", "train", "--json"};
  const auto options = [&](int rank) {
    ProgramOptions one;
    one.environment = {{"QUIRE_RENDEZVOUS", (tiny / "meet").string()},
                       {"QUIRE_RANK", std::to_string(rank)},
                       {"QUIRE_RANKS", "2"},
                       {"QUIRE_START_TIMEOUT", "6"}};
    return one;
  };
  RunningProgram other(eval, options(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  other.send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(7));
  other.send(SIGCONT);
  const ProgramResult root = run_quire(eval, options(0));
  EXPECT_EQ(root.code, 0) << root.err;
  EXPECT_EQ(other.wait().code, 0) << other.wait().err;
}

// A file of the user's is neither taken for what rank 0 says nor written over.
TEST(RanksInAFile, OtherContentIsRefused) {
  const TinyRun tiny;
  write_text(tiny / "meet", "a note of mine");
  ProgramOptions options;
  options.environment = {{"QUIRE_RENDEZVOUS", (tiny / "meet").string()}, {"QUIRE_RANK", "0"}, {"QUIRE_RANKS", "2"}};
  const ProgramResult result = run_quire({"config", tiny.config().string()}, options);
  EXPECT_EQ(result.code, 6) << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.err.find((tiny / "meet").string() + " holds something else than"), std::string::npos) << result.err;
  EXPECT_EQ(read_text(tiny / "meet"), "a note of mine");
}

}  // namespace
}  // namespace quire::test
