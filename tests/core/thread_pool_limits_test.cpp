// Tests the errors of threads that cannot be started.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/background_thread.h"
#include "core/check.h"
#include "core/thread_pool.h"
#include "tests/support/address_sanitizer.h"

namespace quire {
namespace {

// Returns the error of `work` in a process that may use so many more bytes of address space.
std::string thrown_within(rlim_t bytes, const std::function<void()>& work) {
  std::array<int, 2> channel{};
  EXPECT_EQ(::pipe(channel.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // one that waits for ever
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t now = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    const rlimit limit{now + bytes, now + bytes};
    std::string said = "nothing";
    try {
      if (::setrlimit(RLIMIT_AS, &limit) != 0) said = "no limit";
      work();
    } catch (const Error& error) {
      said = fmt::format("{} {}", error.exit_code(), error.what());
    }
    ::_exit(::write(channel[1], said.data(), said.size()) > 0 ? 0 : 1);
  }
  ::close(channel[1]);
  std::array<char, 1000> text{};
  const ssize_t count = ::read(channel[0], text.data(), text.size());
  ::close(channel[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return {text.data(), count > 0 ? static_cast<size_t>(count) : 0};
}

TEST(ThreadLimits, AreNamedByWhoCannotStartOne) {
  if (!test::may_limit_addresses()) GTEST_SKIP() << "it needs addresses of its own";
  const std::string of_pool = thrown_within(rlim_t{40} << 20, [] { const ThreadPool pool(200); });
  EXPECT_TRUE(of_pool.starts_with("8 cannot start thread ")) << of_pool;
  EXPECT_NE(of_pool.find(" of 200 (run.threads): Resource temporarily unavailable; "), std::string::npos) << of_pool;
  EXPECT_NE(of_pool.find("ulimit -v is "), std::string::npos) << of_pool;
  const std::string of_other = thrown_within(rlim_t{40} << 20, [] {
    for (int i = 0; i < 200; ++i) background_thread([] { ::pause(); }).detach();
  });
  EXPECT_TRUE(of_other.starts_with("8 cannot start a thread beside the computation: ")) << of_other;
}

}  // namespace
}  // namespace quire
