// Tests run_program() on ranks: an error is reported once, and all return one exit code.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "core/check.h"
#include "core/log.h"
#include "core/ranks/in_process.h"
#include "trainers/cli/program.h"

namespace quire {
namespace {

void add_speak(Verb& program) {
  add_verb(program, "speak", "Says things", "quire speak").callback([] {
    log_info("information");
    log_warn("careful");
    log_file_only("for the file");
    show_status_line("");
    print("text\n");
  });
}

void add_stop(Verb& program) {
  add_verb(program, "stop", "Stops", "quire stop").callback([] { throw Exit{kExitStopped}; });
}

void add_late_failure(Verb& program) {
  add_verb(program, "fail", "Fails on rank 2, when others are done", "quire fail").callback([] {
    if (Ranks::current().rank() == 2) fail(ErrorKind::disk, "no space");
  });
}

void add_fail_differently(Verb& program) {
  add_verb(program, "differ", "Fails on each rank", "quire differ").callback([] {
    Ranks& ranks = Ranks::current();
    if (ranks.rank() == 0) {
      const Ranks::Operation operation(ranks, "reading");
      fail(ErrorKind::data, "damaged");
    }
    try {
      ranks.barrier();
    } catch (const SharedError&) {
      throw std::bad_alloc();
    }
  });
}

void add_stall(Verb& program) {
  add_verb(program, "stall", "Rank 1 does not come", "quire stall").callback([] {
    Ranks& ranks = Ranks::current();
    ranks.set_deadline(std::chrono::milliseconds(30));
    ranks.barrier();
    const Ranks::Operation operation(ranks, "waiting");
    if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ranks.barrier();
  });
}

struct Spoken {
  std::vector<int> codes;
  std::string out;
  std::vector<std::string> lines;  // lines of stderr, sorted
};

Spoken on_three_ranks(const std::string& verb) {
  const std::vector<const char*> arguments{"quire", verb.c_str()};
  const std::vector<AddVerb> verbs{add_speak, add_stop, add_late_failure, add_fail_differently, add_stall};
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Spoken spoken{std::vector<int>(3, -1), {}, {}};
  InProcessOptions options;
  options.work_reports = true;
  run_in_process(
      3,
      [&](Ranks& ranks) {
        spoken.codes[static_cast<size_t>(ranks.rank())] =
            run_program(2, arguments.data(), {[] { return std::string("quire 1.2"); }, {}}, verbs);
      },
      options);
  spoken.out = testing::internal::GetCapturedStdout();
  std::istringstream err(testing::internal::GetCapturedStderr());
  for (std::string line; std::getline(err, line);) spoken.lines.push_back(line);
  std::sort(spoken.lines.begin(), spoken.lines.end());
  return spoken;
}

TEST(ProgramOnRanks, OthersThanTheFirstOnlyWarn) {
  const Spoken spoken = on_three_ranks("speak");
  EXPECT_EQ(spoken.codes, std::vector<int>(3, 0));
  EXPECT_EQ(spoken.out, "text\n");
  EXPECT_EQ(spoken.lines,
            (std::vector<std::string>{"information", "quire: warning: careful", "quire: warning: rank 1: careful",
                                      "quire: warning: rank 2: careful"}));
}

TEST(ProgramOnRanks, AllHaveOneExitCode) {
  EXPECT_EQ(on_three_ranks("stop").codes, std::vector<int>(3, kExitStopped));
  const Spoken version = on_three_ranks("--version");
  EXPECT_EQ(version.codes, std::vector<int>(3, 0));
  EXPECT_EQ(version.out, "quire 1.2\n");
  // The others have done their work by then.
  const Spoken late = on_three_ranks("fail");
  EXPECT_EQ(late.codes, std::vector<int>(3, 7));
  EXPECT_EQ(late.lines, std::vector<std::string>{"quire: error: no space"});
  const Spoken usage = on_three_ranks("none");
  EXPECT_EQ(usage.codes, std::vector<int>(3, 2));
  ASSERT_EQ(usage.lines.size(), 1U);
  EXPECT_EQ(usage.lines[0].rfind("quire: error: 'none' is no verb", 0), 0U) << usage.lines[0];
}

TEST(ProgramOnRanks, TheFirstErrorIsThatOfAll) {
  const Spoken spoken = on_three_ranks("differ");
  EXPECT_EQ(spoken.codes, std::vector<int>(3, 3));
  EXPECT_EQ(spoken.lines, std::vector<std::string>{"quire: error: rank 0 on localhost, reading: damaged"});
}

TEST(ProgramOnRanks, AMissedDeadlineIsReportedOnce) {
  const Spoken spoken = on_three_ranks("stall");
  EXPECT_EQ(spoken.codes, std::vector<int>(3, 6));
  ASSERT_EQ(spoken.lines.size(), 1U);
  EXPECT_EQ(spoken.lines[0].rfind("quire: error: rank 1 on localhost, waiting: it does not answer", 0), 0U)
      << spoken.lines[0];
}

}  // namespace
}  // namespace quire
