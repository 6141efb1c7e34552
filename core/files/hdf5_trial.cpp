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

// A child that cannot start reports the reason in its exit code: this plus errno.
constexpr int kNotBegun = 64;

// Returns the CPU seconds that the child may use, since a lower limit of the user cannot be raised.
rlim_t seconds_of_child(int requested) {
  rlimit limit{};
  const bool known = ::getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_max != RLIM_INFINITY;
  return known ? std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(requested)) : static_cast<rlim_t>(requested);
}

[[noreturn]] void run_child(rlim_t seconds, const std::function<void()>& read) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU}) ::signal(number, SIG_DFL);
  const rlimit no_core{0, 0};
  const rlimit computing{seconds, seconds};
  // stdout and stderr go to /dev/null, because the C library writes to stderr why it aborts. stdin is closed first,
  // because the limit of descriptors may leave none for /dev/null.
  ::close(STDIN_FILENO);
  const int nothing = ::open("/dev/null", O_RDWR);
  if (::setrlimit(RLIMIT_CORE, &no_core) != 0 || ::setrlimit(RLIMIT_CPU, &computing) != 0 || nothing < 0 ||
      ::dup2(nothing, STDOUT_FILENO) < 0 || ::dup2(nothing, STDERR_FILENO) < 0) {
    ::_exit(kNotBegun + errno);
  }
  try {
    read();
  } catch (...) {
    ::_exit(0);
  }
  ::_exit(0);
}

struct Ended {
  int status = 0;
  double computed = 0;  // seconds
};

// Returns how the child ended, or nothing when it did not end in time and was killed.
std::optional<Ended> end_of(pid_t child, std::chrono::milliseconds limit) {
  // The system call is made by number, because the C library does not declare the function for C++. Without it (kernels
  // before 5.3, or no free descriptor) the child is polled every few milliseconds.
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  const auto until = std::chrono::steady_clock::now() + limit;
  Ended ended;
  rusage usage{};
  pid_t waited = 0;
  while (waited == 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    constexpr int64_t kLook = 5;
    pollfd one{descriptor, POLLIN, 0};
    ::poll(&one, descriptor < 0 ? 0 : 1,
           static_cast<int>(std::min<int64_t>(left.count(), descriptor < 0 ? kLook : 1 << 30)));
    waited = ::wait4(child, &ended.status, WNOHANG, &usage);
    if (waited < 0 && errno == EINTR) waited = 0;
  }
  if (descriptor >= 0) ::close(descriptor);
  if (waited == 0) ::kill(child, SIGKILL);
  while (waited == 0 && ::waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  if (waited == 0) return std::nullopt;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  ended.computed = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  return ended;
}

// Throws the error that the end of the child stands for; it distinguishes a damaged file from a limit.
void judge(const Ended& ended, const std::filesystem::path& path, ErrorKind kind, rlim_t seconds, int requested) {
  const int status = ended.status;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) > kNotBegun) {
    fail(ErrorKind::memory, "{}: the process to try it in cannot begin: {}; is a limit (ulimit -a) too low?",
         path.string(), std::strerror(WEXITSTATUS(status) - kNotBegun));
  }
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  // The kernel counts CPU time in ticks, hence the margin.
  const bool spent = (number == SIGKILL || number == SIGXCPU) && ended.computed > 0.9 * static_cast<double>(seconds);
  if (spent && seconds < static_cast<rlim_t>(requested)) {
    fail(ErrorKind::memory, "{}: the process to try it in may compute for {} s alone (ulimit -t); raise the limit",
         path.string(), seconds);
  }
  if (number == SIGKILL && !spent) {
    fail(ErrorKind::memory, "{}: the process to try it in was killed, perhaps because memory is short; try again",
         path.string());
  }
  const std::string how = number == 0 ? "does not read it"
                          : spent     ? fmt::format("comes to no end in {} s", seconds)
                                      : fmt::format("crashes ({})", ::sigdescr_np(number));
  fail(kind, "{}: its structure is damaged: the HDF5 library {}; write the file again", path.string(), how);
}

}  // namespace

void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read,
                  std::chrono::milliseconds patience) {
  constexpr int kAttempts = 3;
  const std::chrono::milliseconds limit = patience + std::chrono::seconds(seconds);
  const rlim_t max_seconds = seconds_of_child(seconds);
  std::optional<Ended> ended;
  for (int attempt = 0; attempt < kAttempts && !ended; ++attempt) {
    pid_t child = -1;
    {
      // The lock ensures that no other thread is inside HDF5 during the fork.
      const hdf5::Lock lock;
      child = ::fork();
      if (child == 0) {
        hdf5::Lock::begin_anew_in_child();
        run_child(max_seconds, read);
      }
    }
    if (child < 0) {
      fail(ErrorKind::memory, "{}: no process to try it in: {}; is a limit (ulimit -u, ulimit -v) too low?",
           path.string(), std::strerror(errno));
    }
    ended = end_of(child, limit);
  }
  if (!ended) {
    fail(kind, "{}: a process that reads its structure does not end: {} attempts of {} s; is its file system there?",
         path.string(), kAttempts, std::chrono::ceil<std::chrono::seconds>(limit).count());
  }
  judge(*ended, path, kind, max_seconds, seconds);
}

}  // namespace quire
