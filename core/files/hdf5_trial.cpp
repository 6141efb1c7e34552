#include "core/files/hdf5_trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/files/hdf5_handle.h"

namespace quire {

namespace {

[[noreturn]] void run_child(int seconds, const std::function<void()>& read) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}) ::signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  const rlimit computing{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds)};
  // The C library says on stderr why it aborts.
  const int nothing = ::open("/dev/null", O_WRONLY);
  if (::setrlimit(RLIMIT_CORE, &no_core) != 0 || ::setrlimit(RLIMIT_CPU, &computing) != 0 || nothing < 0 ||
      ::dup2(nothing, STDOUT_FILENO) < 0 || ::dup2(nothing, STDERR_FILENO) < 0) {
    ::_exit(1);
  }
  try {
    read();
  } catch (...) {
    ::_exit(0);
  }
  ::_exit(0);
}

// How the child ended, or nothing when it did not and was killed.
std::optional<int> status_of(pid_t child, std::chrono::milliseconds limit) {
  // By number, because the C library does not declare the function for C++. Kernels before 5.3 do not have it: the wait
  // is then without a limit.
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  const auto until = std::chrono::steady_clock::now() + limit;
  bool ended = descriptor < 0;
  while (!ended) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    pollfd waited{descriptor, POLLIN, 0};
    ended = ::poll(&waited, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 30))) > 0;
  }
  if (descriptor >= 0) ::close(descriptor);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return ended ? std::optional(status) : std::nullopt;
}

}  // namespace

void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read,
                  std::chrono::milliseconds patience) {
  constexpr int kAttempts = 3;
  const std::chrono::milliseconds limit = patience + std::chrono::seconds(seconds);
  std::optional<int> ended;
  for (int attempt = 0; attempt < kAttempts && !ended; ++attempt) {
    pid_t child = -1;
    {
      // No other thread is in the middle of HDF5 when the process is copied.
      const hdf5::Lock lock;
      child = ::fork();
      if (child == 0) {
        hdf5::Lock::begin_anew_in_child();
        run_child(seconds, read);
      }
    }
    if (child < 0) fail(ErrorKind::memory, "{}: no process to try it in: {}", path.string(), std::strerror(errno));
    ended = status_of(child, limit);
  }
  if (!ended) {
    fail(kind, "{}: a process that reads its structure does not end: {} attempts of {} s; is its file system there?",
         path.string(), kAttempts, std::chrono::ceil<std::chrono::seconds>(limit).count());
  }
  const int status = *ended;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const std::string how = !WIFSIGNALED(status) ? "does not read it"
                          : WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU
                              ? fmt::format("comes to no end in {} s", seconds)
                              : fmt::format("crashes ({})", ::sigdescr_np(WTERMSIG(status)));
  fail(kind, "{}: its structure is damaged: the HDF5 library {}; write the file again", path.string(), how);
}

}  // namespace quire
