// Checks what the other processes do when one of several dies, stops, throws or is asked to stop.
#include <signal.h>

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/support/mpirun.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

using Clock = std::chrono::steady_clock;

class MpirunFailures : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = missing_mpirun(); !missing.empty()) GTEST_SKIP() << missing;
  }
  std::vector<std::string> long_run(const std::string& name) const {
    return tiny_.train_arguments(name, {"schedule.steps=100000", "checkpoint.every=0", "run.rank_timeout=6s"});
  }
  // Runs until rank `rank` misbehaves in the way of `act`, and expects one message that begins so, soon.
  void expect_end(int ranks, const std::string& misbehaves, const std::string& message, std::chrono::seconds limit) {
    const auto begun = Clock::now();
    MpirunOptions options;
    options.misbehaves = misbehaves;
    const ProgramResult result = under_mpirun(ranks, long_run("run"), options);
    EXPECT_LT(Clock::now() - begun, limit) << misbehaves;
    EXPECT_NE(result.code, 0);
    ASSERT_EQ(result.errors().size(), 1U) << result.err;
    // Steps take a millisecond, so not every one of them is reported.
    const std::string said = result.errors()[0];
    EXPECT_TRUE(said.starts_with("quire: error: " + message + ", step 4, ") ||
                said.starts_with("quire: error: " + message + ", step 5, "))
        << result.err;
    std::filesystem::remove_all(tiny_ / "run");
  }
  void wait_for_steps(const std::string& run, int steps, RunningProgram& program) const {
    const auto lines = [&] {
      std::ifstream stream(tiny_ / run / "metrics.jsonl");
      return std::count(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>(), '\n');
    };
    while (lines() < steps && program.running()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  static bool lives(pid_t process) {
    std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
    std::string text;
    if (!std::getline(stream, text)) return false;
    const size_t end = text.rfind(')');
    return end != std::string::npos && text[end + 2] != 'Z';
  }
  const TinyRun tiny_;
};

std::string host() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

TEST_F(MpirunFailures, OneThatIsKilledIsNamedAndAllEnd) {
  for (const int rank : {0, 1, 2}) {
    expect_end(3, std::to_string(rank) + ":5:summing gradients:9", "rank " + std::to_string(rank) + " on " + host(),
               std::chrono::seconds(30));
  }
}

// mpirun tells the others to end as soon as it sees that one is gone, which can be before they have said so.
TEST_F(MpirunFailures, RanksThatAreToldToEndSayWhatTheyKnow) {
  MpirunOptions options;
  options.told_to_end = true;
  std::vector<std::string> arguments = long_run("run");
  arguments.emplace_back("model.widht=16");
  const ProgramResult result = under_mpirun(2, arguments, options);
  EXPECT_EQ(result.code, 2) << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors()[0].find("widht"), std::string::npos) << result.err;
}

TEST_F(MpirunFailures, RanksThatAreToldToEndAndKnowNothingEnd) {
  MpirunOptions options;
  options.told_to_end = true;
  const auto begun = Clock::now();
  const ProgramResult result = under_mpirun(2, long_run("run"), options);
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(30));
  // The code is that of the signal, or of the other rank if one was gone before.
  EXPECT_TRUE(result.code == 128 + SIGTERM || result.code == 6) << result.code << '\n' << result.err;
}

TEST_F(MpirunFailures, OneThatThrowsIsNamedAndItsCodeIsThatOfAll) {
  MpirunOptions options;
  options.misbehaves = "1:3:summing gradients:throw";
  const ProgramResult result = under_mpirun(3, long_run("run"), options);
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(result.errors(), std::vector<std::string>{"quire: error: rank 1 on " + host() +
                                                      ", step 3, summing gradients: thrown by the test"});
}

TEST_F(MpirunFailures, OneThatIsStoppedIsNamedAfterTheTimeout) {
  // Within run.rank_timeout (6 s) and 10 s more; starting takes a moment.
  for (const int rank : {0, 2}) {
    expect_end(3, std::to_string(rank) + ":5:computing gradients:" + std::to_string(SIGSTOP),
               "rank " + std::to_string(rank) + " on " + host(), std::chrono::seconds(20));
  }
}

// A batch system may suspend a job for longer than ranks wait for each other.
TEST_F(MpirunFailures, AJobThatIsSuspendedGoesOn) {
  std::vector<std::string> arguments = long_run("run");
  arguments.emplace_back("run.rank_timeout=1s");
  RunningProgram program(mpirun_arguments(3, arguments), mpirun_program());
  const std::vector<pid_t> processes = processes_of_ranks(program.process(), 3);
  ASSERT_EQ(processes.size(), 3U);
  int steps = 0;
  for (const int first : {0, 1}) {
    wait_for_steps("run", steps += 5, program);
    // Not all at the same time, and in another order.
    const auto send = [&](int signal) {
      for (size_t i = 0; i < 3; ++i) {
        ::kill(processes[(i + static_cast<size_t>(first)) % 3], signal);
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
    };
    send(SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    send(SIGCONT);
    steps = static_cast<int>(read_metrics(tiny_ / "run/metrics.jsonl").size());
  }
  wait_for_steps("run", steps + 20, program);
  ::kill(processes[1], SIGTERM);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_TRUE(result.errors().empty()) << result.err;
}

TEST_F(MpirunFailures, ACorpusThatIsCutIsSaidOnce) {
  // Rows are read far apart, so both ranks come upon what is gone.
  write_corpus(tiny_ / "long.h5",
               {{"train", texts_of_lengths({400000, 400000, 400000})}, {"valid", texts_of_lengths({60})}});
  std::vector<std::string> arguments = long_run("run");
  arguments.push_back("data.corpus=" + (tiny_ / "long.h5").string());
  RunningProgram program(mpirun_arguments(3, arguments), mpirun_program());
  wait_for_steps("run", 5, program);
  std::filesystem::resize_file(tiny_ / "long.h5", 4096);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.code, 3) << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors()[0].find("long.h5: became shorter while it was read"), std::string::npos) << result.err;
}

TEST_F(MpirunFailures, OneThatNeverStartsIsNotWaitedForLong) {
  MpirunOptions options;
  options.of_mpirun = {"-np", "1", "sleep", "1000", ":", "-x", "QUIRE_START_TIMEOUT=2"};
  const auto begun = Clock::now();
  const ProgramResult result = under_mpirun(2, long_run("run"), options);
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(15));
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_EQ(result.errors(),
            std::vector<std::string>{"quire: error: rank 1 on " + host() +
                                     ", starting: MPI_Init does not come back since 2 s (QUIRE_START_TIMEOUT): a rank "
                                     "has not come to it"})
      << result.err;
}

TEST_F(MpirunFailures, ASignalToOneRankStopsAllWithOneCheckpoint) {
  for (const auto& [rank, signal] : {std::pair{0, SIGTERM}, std::pair{2, SIGUSR1}, std::pair{1, SIGINT}}) {
    RunningProgram program(mpirun_arguments(3, long_run("run")), mpirun_program());
    wait_for_steps("run", 5, program);
    const std::vector<pid_t> processes = processes_of_ranks(program.process(), 3);
    ASSERT_EQ(processes.size(), 3U);
    ::kill(processes[static_cast<size_t>(rank)], signal);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.code, 75) << result.err;
    EXPECT_TRUE(result.errors().empty()) << result.err;
    const std::vector<int64_t> saved = checkpoint_steps(tiny_ / "run/checkpoints");
    ASSERT_EQ(saved.size(), 1U);
    EXPECT_NO_THROW(CheckpointReader::open(tiny_.checkpoint("run", saved[0])));
    for (const pid_t process : processes) EXPECT_FALSE(lives(process));
    std::filesystem::remove_all(tiny_ / "run");
  }
}

TEST_F(MpirunFailures, SigusrToMpirunStopsAllWithOneCheckpoint) {
  RunningProgram program(mpirun_arguments(3, long_run("run")), mpirun_program());
  wait_for_steps("run", 5, program);
  program.send(SIGUSR1);
  const ProgramResult result = program.wait();
  EXPECT_EQ(result.code, 75) << result.err;
  EXPECT_EQ(checkpoint_steps(tiny_ / "run/checkpoints").size(), 1U);
}

// Writes a script in place of one of SLURM's commands.
void write_script(const std::filesystem::path& path, const std::string& text) {
  write_text(path, "#!/bin/sh\n" + text + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// Checks how the scripts in configs/launch handle signals.
TEST_F(MpirunFailures, TheScriptForContainersPassesSignalsOn) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::vector<std::string> arguments = long_run("run");
    arguments.insert(arguments.begin(), {"2", QUIRE_BINARY_DIR "/bin/quire"});
    ProgramOptions script;
    script.program = QUIRE_SOURCE_DIR "/configs/launch/container.sh";
    RunningProgram program(arguments, script);
    wait_for_steps("run", 5, program);
    program.send(signal);
    const ProgramResult result = program.wait();
    EXPECT_EQ(result.code, 75) << result.err;
    EXPECT_TRUE(result.errors().empty()) << result.err;
    EXPECT_EQ(checkpoint_steps(tiny_ / "run/checkpoints").size(), 1U);
    std::filesystem::remove_all(tiny_ / "run");
  }
}

TEST_F(MpirunFailures, TheJobScriptBeginsGoesOnAndIsQueuedAgain) {
  // These replace SLURM's commands: srun starts two ranks, scontrol records its arguments.
  const std::filesystem::path bin = tiny_ / "bin";
  std::filesystem::create_directory(bin);
  const std::vector<std::string> mpirun = mpirun_arguments(2, {}, {.program = "quire_with_mechanisms"});
  std::string command = QUIRE_MPIEXEC;
  for (const std::string& argument : mpirun) command += " " + argument;
  write_script(bin / "srun",
               "[ \"$1 $2 $3 $4\" = '--mpi=pmix --kill-on-bad-exit=0 --wait=60 quire' ] || exit 9; shift 4; exec " +
                   command + " \"$@\"");
  write_script(bin / "scontrol", "echo \"$@\" >> " + (tiny_ / "asked").string());
  ProgramOptions script;
  script.program = QUIRE_SOURCE_DIR "/configs/launch/quire.sbatch";
  script.environment = {{"PATH", bin.string() + ":" + std::getenv("PATH")},
                        {"SLURM_JOB_ID", "77"},
                        {"QUIRE_TEST_AT", "1:8:asking whether to stop:" + std::to_string(SIGUSR1)}};
  const std::vector<std::string> arguments{tiny_.config().string(), (tiny_ / "run").string()};
  EXPECT_EQ(run_quire(arguments, script).code, 75);
  EXPECT_EQ(checkpoint_steps(tiny_ / "run/checkpoints"), std::vector<int64_t>{8});
  EXPECT_EQ(read_text(tiny_ / "asked"), "requeue 77\n");
  script.environment.pop_back();
  // Whoever asks it to stop does not want it to be queued again.
  write_text(tiny_ / "run/STOP", "");
  const ProgramResult stopped = run_quire(arguments, script);
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_EQ(read_text(tiny_ / "asked"), "requeue 77\n");
  const ProgramResult finished = run_quire(arguments, script);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(checkpoint_steps(tiny_ / "run/checkpoints").front(), 20);
  EXPECT_EQ(read_text(tiny_ / "asked"), "requeue 77\n");
}

// A fault of a machine is no reason to stop, but one that comes again from the same checkpoint is.
TEST_F(MpirunFailures, TheJobScriptQueuesFaultsAgainSomeTimes) {
  const std::filesystem::path bin = tiny_ / "bin";
  std::filesystem::create_directory(bin);
  write_script(bin / "srun", "exit $CODE");
  write_script(bin / "scontrol", "echo \"$@\" >> " + (tiny_ / "asked").string());
  const std::filesystem::path restarts = tiny_ / "run.restarts";
  // Returns whether the job is queued again after a run that ends with `code`, and the output of the script.
  const auto ends_with = [&](int code, const std::string& max_restarts = "") {
    ProgramOptions script;
    script.program = QUIRE_SOURCE_DIR "/configs/launch/quire.sbatch";
    script.environment = {
        {"PATH", bin.string() + ":" + std::getenv("PATH")}, {"SLURM_JOB_ID", "77"}, {"CODE", std::to_string(code)}};
    if (!max_restarts.empty()) script.environment.emplace_back("QUIRE_RESTARTS", max_restarts);
    std::filesystem::remove(tiny_ / "asked");
    const ProgramResult result = run_quire({tiny_.config().string(), (tiny_ / "run").string()}, script);
    EXPECT_EQ(result.code, code);
    EXPECT_EQ(result.err.empty(), code <= 8 && code != 6) << result.err;
    return std::filesystem::exists(tiny_ / "asked");
  };
  std::filesystem::create_directories(tiny_ / "run/checkpoints/step-00000008");
  for (const int code : {1, 2, 3, 4, 5, 7, 8}) EXPECT_FALSE(ends_with(code)) << code;
  EXPECT_FALSE(std::filesystem::exists(restarts));
  for (const int code : {6, 137, 6}) EXPECT_TRUE(ends_with(code));
  EXPECT_EQ(read_text(restarts), "3 step-00000008\n");
  EXPECT_FALSE(ends_with(6));
  EXPECT_FALSE(std::filesystem::exists(restarts));  // whoever starts it again may hope again
  // A newer checkpoint counts anew.
  EXPECT_TRUE(ends_with(6, "1"));
  std::filesystem::create_directories(tiny_ / "run/checkpoints/step-00000012");
  EXPECT_TRUE(ends_with(6, "1"));
  EXPECT_FALSE(ends_with(6, "1"));
  EXPECT_FALSE(ends_with(6, "0"));
  EXPECT_TRUE(ends_with(6));
  EXPECT_FALSE(ends_with(0));
  EXPECT_FALSE(std::filesystem::exists(restarts));
  // Before there is a checkpoint each start moves what is there aside.
  std::filesystem::remove_all(tiny_ / "run");
  EXPECT_TRUE(ends_with(6, "1"));
  EXPECT_FALSE(ends_with(6, "1"));
}

TEST_F(MpirunFailures, WithoutMpirunNoRankLivesOn) {
  RunningProgram program(mpirun_arguments(3, long_run("run")), mpirun_program());
  wait_for_steps("run", 5, program);
  const std::vector<pid_t> processes = processes_of_ranks(program.process(), 3);
  ASSERT_EQ(processes.size(), 3U);
  program.send(SIGKILL);
  program.wait();
  const auto until = Clock::now() + std::chrono::seconds(10);
  const auto any = [&] { return lives(processes[0]) || lives(processes[1]) || lives(processes[2]); };
  while (any() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(any());
}

// Rows of very different lengths: a rank whose rows are short waits for one whose rows are long.
TEST_F(MpirunFailures, DocumentsOfVeryDifferentLengthsNeverHang) {
  std::vector<int64_t> lengths{20000, 1, 1, 2, 1};
  for (int i = 0; i < 60; ++i) lengths.push_back(i % 7 == 0 ? 900 : 1);
  write_corpus(tiny_ / "uneven.h5",
               {{"train", texts_of_lengths(lengths)}, {"valid", texts_of_lengths({5000, 333, 250})}});
  const ProgramResult result =
      under_mpirun(4, tiny_.train_arguments("run", {"data.corpus=" + (tiny_ / "uneven.h5").string(), "data.rows=5",
                                                    "schedule.steps=60", "evaluate.every=20"}));
  EXPECT_EQ(result.code, 0) << result.err;
}

}  // namespace
}  // namespace quire::test
