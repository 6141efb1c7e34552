#include "trainers/run/signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace quire {
namespace {

TEST(StopSignals, RemembersTheFirst) {
  const auto before = std::signal(SIGHUP, SIG_DFL);  // nohup ignores it
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const StopSignals signals;
    EXPECT_FALSE(signals.requested());
    std::raise(number);
    EXPECT_TRUE(signals.requested());
    EXPECT_EQ(signals.signal_number(), number);
    if (number != SIGUSR1) std::raise(SIGUSR1);
    EXPECT_EQ(signals.signal_number(), number);
  }
  const StopSignals fresh;
  EXPECT_FALSE(fresh.requested());
  EXPECT_EQ(fresh.reason(), "");
  std::signal(SIGHUP, before);
}

TEST(StopSignals, UnderNohupAClosedTerminalStopsNothing) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignals signals;
    std::raise(SIGHUP);
    EXPECT_FALSE(signals.requested());
  }
  std::signal(SIGHUP, before);
}

TEST(StopSignals, ASecondInterruptEndsTheProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const StopSignals signals;
    std::raise(SIGINT);
    if (!signals.requested()) ::_exit(1);
    std::raise(SIGINT);
    ::_exit(2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

TEST(StopSignals, RanksThatAreThreadsSeeTheSame) {
  const StopSignals first;
  {
    const StopSignals second;
    std::raise(SIGTERM);
    EXPECT_EQ(second.reason(), "SIGTERM");
  }
  EXPECT_EQ(first.reason(), "SIGTERM");
  std::raise(SIGUSR1);  // the handlers are still there
  EXPECT_EQ(first.reason(), "SIGTERM");
}

TEST(StopSignals, GivesTheHandlersBack) {
  struct sigaction before = {};
  sigaction(SIGTERM, nullptr, &before);
  { const StopSignals signals; }
  struct sigaction after = {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace quire
