#include "trainers/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/log.h"

namespace quire {

namespace {

bool holds_run(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / "config.yaml", ignored);
}

constexpr const char* kLock = ".lock";

bool is_locked_by_another(int descriptor, int how) {
  int result = 0;
  do {
    result = ::flock(descriptor, how | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  return result != 0 && errno == EWOULDBLOCK;
}

// Returns what the process with the lock has written into it: "process 4711 on node07".
std::string holder_of(int lock) {
  std::array<char, 512> text{};
  const ssize_t count = ::pread(lock, text.data(), text.size(), 0);
  const std::string_view line(text.data(), count > 0 ? static_cast<size_t>(count) : 0);
  return std::string(line.substr(0, line.find('\n')));
}

void write_holder(int lock) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string line = fmt::format("process {} on {}\n", ::getpid(), host.data());
  // The text only serves the message of another process, so failures are ignored.
  [[maybe_unused]] const bool written = ::ftruncate(lock, 0) == 0 && ::pwrite(lock, line.data(), line.size(), 0) > 0;
}

[[noreturn]] void fail_for_running(const std::filesystem::path& path, const std::string& holder) {
  fail(ErrorKind::config, "{}: another process is running here{}; stop it, or choose another --run-dir", path.string(),
       holder.empty() ? "" : " (" + holder + ")");
}

// Checks the files that a run appends to, and that inspection reads.
void require_regular_files(const RunDirectory& run) {
  for (const std::filesystem::path& path : {run.metrics(), run.log()}) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) continue;
    fail(ErrorKind::data, "{}: is not a regular file; move it out of the run directory", path.string());
  }
}

// Throws for the remains of a run that lost its configuration, or files of another program.
void require_no_remains(const RunDirectory& run) {
  std::error_code ignored;
  for (const std::filesystem::path& path : {run.metrics(), run.log()}) {
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) continue;
    fail(ErrorKind::config, "{}: exists already, in a folder without a config.yaml; choose another --run-dir",
         path.string());
  }
  if (std::filesystem::is_empty(run.checkpoints(), ignored)) return;
  fail(ErrorKind::config, "{}: is not empty, in a folder without a config.yaml; choose another --run-dir",
       run.checkpoints().string());
}

}  // namespace

RunDirectory::RunDirectory(std::filesystem::path path, bool lock)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(ErrorKind::disk, "{}: cannot be opened: {}", path_.string(), std::strerror(errno));
  if (!lock) return;
  // On file systems without locks the run has none.
  if (is_locked_by_another(descriptor_, LOCK_EX)) {
    ::close(descriptor_);
    fail_for_running(path_, "");
  }
}

// Locks the file .lock, which network file systems require to be open for writing. When it cannot be made, a later
// write to the run reports the reason.
void RunDirectory::lock_on_all_hosts(std::chrono::milliseconds patience) {
  lock_ = ::open((path_ / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock_ < 0) return;
  const auto until = std::chrono::steady_clock::now() + patience;
  bool told = false;
  while (is_locked_by_another(lock_, LOCK_EX)) {
    if (std::chrono::steady_clock::now() >= until) fail_for_running(path_, holder_of(lock_));
    if (!told) {
      log_info(fmt::format("{}: the run is held by {}; waiting, since a host that has crashed holds it for up to {} s",
                           path_.string(), holder_of(lock_), kLease.count()));
    }
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  write_holder(lock_);
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      lock_(std::exchange(other.lock_, -1)) {}

RunDirectory::~RunDirectory() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (lock_ >= 0) ::close(lock_);
}

RunDirectory RunDirectory::create(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path / "checkpoints", error);
  if (error) {
    fail(ErrorKind::disk, "{}: the run directory cannot be made: {}; choose another --run-dir", path.string(),
         error.message());
  }
  RunDirectory run(path, true);
  const auto require_no_run = [&] {
    if (!holds_run(path)) return;
    fail(ErrorKind::config, "{}: already holds a run; continue it with --resume {}, or choose another --run-dir",
         path.string(), path.string());
  };
  require_no_run();
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorKind::disk, "{}: cannot be written: {}; choose another --run-dir", path.string(), std::strerror(errno));
  }
  require_no_remains(run);
  run.lock_on_all_hosts(kLease);
  require_no_run();  // a process of another host may have created a run meanwhile
  return run;
}

RunDirectory RunDirectory::open(const std::filesystem::path& path, std::chrono::milliseconds patience) {
  if (!holds_run(path)) {
    fail(ErrorKind::config, "{}: no run here (config.yaml is missing); give the folder of a run", path.string());
  }
  RunDirectory run(path, true);
  run.lock_on_all_hosts(patience);
  require_regular_files(run);
  return run;
}

RunDirectory RunDirectory::of_root(const std::filesystem::path& path) {
  if (!holds_run(path) && !std::filesystem::is_directory(path / "checkpoints")) {
    fail(ErrorKind::disk,
         "{}: rank 0 has the run here, but this rank does not see it; put it on a file system that all hosts share",
         path.string());
  }
  return {path, false};
}

bool RunDirectory::is_in_use(const std::filesystem::path& path) {
  const auto is_locked = [](const std::filesystem::path& locked, int flags) {
    const int descriptor = ::open(locked.c_str(), flags | O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const bool locked_by_another = is_locked_by_another(descriptor, LOCK_SH);
    ::close(descriptor);
    return locked_by_another;
  };
  return is_locked(path, O_DIRECTORY) || is_locked(path / kLock, O_NOFOLLOW | O_NONBLOCK);
}

std::filesystem::path default_run_directory(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    fail(ErrorKind::config, "run.name: '{}' is not a folder name; the run directory is runs/NAME", name);
  }
  return std::filesystem::path("runs") / name;
}

}  // namespace quire
