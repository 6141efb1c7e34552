#include "core/background_thread.h"

#include <sys/resource.h>

#include <csignal>
#include <exception>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

std::string limits_on_threads() {
  std::string text;
  const auto add = [&text](auto resource, const char* name, const char* unit, uint64_t size) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    text += fmt::format("{}{} is {} {}", text.empty() ? "" : ", ", name, limit.rlim_cur / size, unit);
  };
  add(RLIMIT_NPROC, "ulimit -u", "processes and threads of the user", 1);
  add(RLIMIT_AS, "ulimit -v", "KiB of addresses", 1024);
  add(RLIMIT_DATA, "ulimit -d", "KiB of data", 1024);
  return text.empty() ? "the machine or a control group (pids.max) allows no more" : text;
}

}  // namespace

std::thread start_thread(const std::string& what, std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    fail(ErrorKind::memory, "cannot start {}: {}; {}; raise the limit, or use fewer threads", what,
         error.code().message(), limits_on_threads());
  }
}

std::thread background_thread(std::function<void()> work) {
  // A new thread inherits the signal mask of the thread that starts it.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  std::exception_ptr error;
  try {
    thread = start_thread("a thread beside the computation", std::move(work));
  } catch (...) {
    error = std::current_exception();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error) std::rethrow_exception(error);
  return thread;
}

}  // namespace quire
