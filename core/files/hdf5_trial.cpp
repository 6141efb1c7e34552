#include "core/files/hdf5_trial.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read) {
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
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const std::string how = !WIFSIGNALED(status) ? "does not read it"
                          : WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU
                              ? fmt::format("comes to no end in {} s", seconds)
                              : fmt::format("crashes ({})", ::sigdescr_np(WTERMSIG(status)));
  fail(kind, "{}: its structure is damaged: the HDF5 library {}; write the file again", path.string(), how);
}

}  // namespace quire
