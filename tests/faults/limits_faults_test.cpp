// Limits of the user's (ulimit) and pipes whose reader goes away.
#include <signal.h>
#include <sys/resource.h>

#include "core/cores.h"
#include "tests/faults/expect_fault.h"
#include "tests/support/address_sanitizer.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Expects the end of a run that had begun: other lines come before its one error.
void expect_end(const ProgramResult& result, int code, const std::string& part) {
  EXPECT_EQ(result.code, code) << result.signal << result.err;
  ASSERT_EQ(result.errors().size(), 1U) << result.err;
  EXPECT_NE(result.errors()[0].find(part), std::string::npos) << result.err;
}

TEST(ClosedPipes, TrainingGoesOnWithoutAReaderOfItsMessages) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("whole").code, 0);
  ProgramOptions options;
  options.unread = {STDOUT_FILENO, STDERR_FILENO};
  const ProgramResult result = run_quire(tiny.train_arguments("run"), options);
  EXPECT_EQ(result.code, 0) << result.signal;
  expect_same_checkpoint(tiny.checkpoint("run", 20), tiny.checkpoint("whole", 20));
  EXPECT_NE(read_text(tiny / "run/log.txt").find("finished after step 20"), std::string::npos);
}

TEST(ClosedPipes, EveryVerbThatPrintsEndsQuietly) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  write_text(tiny / "a.txt", "a text");
  const std::string run = (tiny / "run").string();
  const std::string config = tiny.config().string();
  ProgramOptions options;
  options.unread = {STDOUT_FILENO};
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"eval", run, "--losses", (tiny / "losses.h5").string()},
           {"generate", run, "--prompt", "a", "--length", "5"},
           {"generate", run, "--prompt", "a", "--length", "5", "--json"},
           {"prepare", "--input", (tiny / "a.txt").string(), "--output", (tiny / "c.h5").string()},
           {"inspect", run},
           {"plan", config},
           {"bench", config, "--steps", "1", "--warmup", "0"},
           {"config", config, "--print", "full"},
           {"config", "--list"},
           {"--help"},
           {"--version"},
           {"train", "--help"}}) {
    const ProgramResult result = run_quire(command, options);
    EXPECT_EQ(result.signal, SIGPIPE) << command[0] << ' ' << result.code << result.err;
    EXPECT_EQ(result.err.find("quire: "), std::string::npos) << result.err;
  }
  // The files that were written are whole.
  EXPECT_TRUE(fs::exists(tiny / "losses.h5"));
  EXPECT_EQ(run_quire({"inspect", (tiny / "c.h5").string()}).code, 0);
  for (const auto& entry : fs::directory_iterator(tiny / ".")) {
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
  }
}

// Nothing says that a pipeline of ranks has failed.
TEST(ClosedPipes, RanksEndQuietly) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=2"}).code, 0);
  const std::string place = (tiny / "meet").string();
  std::vector<std::unique_ptr<RunningProgram>> ranks;
  for (const char* rank : {"0", "1"}) {
    ProgramOptions options;
    options.environment = {{"QUIRE_RENDEZVOUS", place}, {"QUIRE_RANK", rank}, {"QUIRE_RANKS", "2"}};
    options.unread = {STDOUT_FILENO};
    ranks.push_back(
        std::make_unique<RunningProgram>(std::vector<std::string>{"inspect", (tiny / "run").string()}, options));
  }
  const ProgramResult root = ranks[0]->wait();
  const ProgramResult other = ranks[1]->wait();
  EXPECT_EQ(root.code, 128 + SIGPIPE) << root.err;
  EXPECT_TRUE(root.errors().empty()) << root.err;
  EXPECT_NE(other.code, 0);
  EXPECT_TRUE(other.errors().empty()) << other.err;
}

TEST(Limits, OfFileSizeEndsInOneLineAndKeepsThePreviousCheckpoint) {
  const TinyRun tiny;
  ASSERT_EQ(tiny.train("run", {"schedule.steps=10", "schedule.kind=constant"}).code, 0);
  ProgramOptions options;
  options.limits = {{RLIMIT_FSIZE, 30000}};
  const std::vector<std::string> resume = tiny.resume_arguments(tiny / "run", {"schedule.steps=20"});
  expect_end(run_quire(resume, options), 7, "File too large");
  EXPECT_EQ(checkpoint_steps(tiny / "run/checkpoints"), std::vector<int64_t>{10});
  EXPECT_NO_THROW(CheckpointReader::open(tiny.checkpoint("run", 10)));
  // Files that grow by lines.
  for (const char* name : {"log.txt", "metrics.jsonl"}) {
    fs::remove_all(tiny / "copy");
    fs::copy(tiny / "run", tiny / "copy", fs::copy_options::recursive);
    const std::string line = name == std::string("log.txt") ? "a line\n" : "{\"step\":1}\n";
    std::string text;
    while (text.size() + line.size() < 500000) text += line;
    write_text(tiny / "copy" / name, text);
    options.limits = {{RLIMIT_FSIZE, text.size()}};
    expect_end(run_quire(tiny.resume_arguments(tiny / "copy", {"schedule.steps=20"}), options), 7, name);
    EXPECT_NO_THROW(CheckpointReader::open(tiny.checkpoint("copy", 10)));
  }
}

TEST(Limits, OfOutputThatGoesIntoAFile) {
  const TinyRun tiny;
  ProgramOptions options;
  options.limits = {{RLIMIT_FSIZE, 100}};
  expect_end(run_quire({"config", "--list"}, options), 7, "standard output cannot be written: File too large");
}

TEST(Limits, OfThreads) {
  const TinyRun tiny;
  const std::string threads = std::to_string(4 * cores_of_machine());
  const std::string more = std::to_string(4 * cores_of_machine() + 1);
  EXPECT_FAULT(tiny.train("run", {"run.threads=" + more}), 2, "give at most " + threads);
  EXPECT_FALSE(fs::exists(tiny / "run"));
  EXPECT_FAULT(run_quire({"bench", tiny.config().string(), "run.threads=" + more}), 2, "give at most " + threads);
  const ProgramResult warned = tiny.train("run", {"schedule.steps=2", "run.threads=" + threads});
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_NE(warned.err.find("quire: warning: run.threads: " + threads + " threads share"), std::string::npos);
  if (!may_limit_addresses()) GTEST_SKIP() << "it needs addresses of its own";
  ProgramOptions options;
  options.limits = {{RLIMIT_AS, uint64_t{1} << 40}, {RLIMIT_STACK, uint64_t{1} << 39}};  // a thread takes as much
  expect_end(run_quire(tiny.train_arguments("none", {"run.threads=" + threads}), options), 8, "ulimit -v is ");
}

// A sound corpus is not called damaged because a process to try it in could not begin, or not for long.
TEST(Limits, OfTheProcessThatTriesAFile) {
  const TinyRun tiny;
  const std::vector<std::string> command{"inspect", tiny.corpus().string()};
  ProgramOptions options;
  for (const int files : {4, 5, 6}) {
    options.limits = {{RLIMIT_NOFILE, static_cast<uint64_t>(files)}};
    const ProgramResult result = run_quire(command, options);
    EXPECT_EQ(result.err.find("damaged"), std::string::npos) << files << result.err;
  }
  options.limits = {{RLIMIT_CPU, 2}};
  EXPECT_EQ(run_quire(command, options).code, 0);
}

}  // namespace
}  // namespace quire::test
