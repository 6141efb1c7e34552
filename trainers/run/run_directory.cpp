#include "trainers/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

bool holds_run(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / "config.yaml", ignored);
}

// Files that a run appends to, and that a look at it reads.
void require_regular_files(const RunDirectory& run) {
  for (const std::filesystem::path& path : {run.metrics(), run.log()}) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(path, ignored);
    if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) continue;
    fail(ErrorKind::data, "{}: is not a regular file; move it out of the run directory", path.string());
  }
}

// A run that lost its configuration, or files of another program.
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
  // File systems without locks are used without one.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    fail(ErrorKind::config, "{}: another process is running here; stop it, or choose another --run-dir",
         path_.string());
  }
}

RunDirectory::RunDirectory(RunDirectory&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

RunDirectory::~RunDirectory() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunDirectory RunDirectory::create(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path / "checkpoints", error);
  if (error) {
    fail(ErrorKind::disk, "{}: the run directory cannot be made: {}; choose another --run-dir", path.string(),
         error.message());
  }
  RunDirectory run(path, true);
  if (holds_run(path)) {
    fail(ErrorKind::config, "{}: already holds a run; continue it with --resume {}, or choose another --run-dir",
         path.string(), path.string());
  }
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorKind::disk, "{}: cannot be written: {}; choose another --run-dir", path.string(), std::strerror(errno));
  }
  require_no_remains(run);
  return run;
}

RunDirectory RunDirectory::open(const std::filesystem::path& path) {
  if (!holds_run(path)) {
    fail(ErrorKind::config, "{}: no run here (config.yaml is missing); give the folder of a run", path.string());
  }
  RunDirectory run(path, true);
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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool held = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return held;
}

std::filesystem::path default_run_directory(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    fail(ErrorKind::config, "run.name: '{}' is not a folder name; the run directory is runs/NAME", name);
  }
  return std::filesystem::path("runs") / name;
}

}  // namespace quire
