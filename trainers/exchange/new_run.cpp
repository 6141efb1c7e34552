#include "trainers/exchange/new_run.h"

#include <fcntl.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/check.h"
#include "core/files/file_io.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

[[noreturn]] void fail_for_existing(const fs::path& output) {
  fail(ErrorKind::config, "--output {}: exists already, and nothing is overwritten; choose another name",
       output.string());
}

}  // namespace

void NewFolder::require_new(const fs::path& output) {
  const fs::path path = without_slash(output);
  const std::string name = path.filename().string();
  if (name.empty() || name == "." || name == "..") {
    fail(ErrorKind::config, "--output {}: is no name of a new folder", output.string());
  }
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) fail_for_existing(output);
}

NewFolder::NewFolder(const fs::path& output) : output_(without_slash(output)) {
  require_new(output);
  const fs::path parent = output_.has_parent_path() ? output_.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) fail(ErrorKind::disk, "--output {}: cannot be made: {}", output.string(), error.message());
  std::string name = (parent / ("." + output_.filename().string() + ".partial-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    fail(ErrorKind::disk, "--output {}: cannot be made: {}", output.string(), std::strerror(errno));
  }
  partial_ = name;
  fs::permissions(partial_, fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write, error);
}

NewFolder::~NewFolder() {
  if (finished_) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

void NewFolder::finish() {
  flush_directory(partial_);
  if (::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, output_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST || errno == ENOTEMPTY) fail_for_existing(output_);
    // For file systems without this kind of rename; the folder was not there a moment ago.
    require_new(output_);
    rename_durably(partial_, output_);
  }
  finished_ = true;
  flush_directory(output_.parent_path());
}

void write_new_run(const fs::path& output, const NewRun& run, const WriteFiles& write_files) {
  NewFolder folder(output);
  write_checkpoint(folder.path() / "checkpoints", run.step, write_files, run.meta,
                   {{"config.yaml", run.config}, {"tokenizer.txt", run.tokenizer}});
  write_file_durably(folder.path() / "config.yaml", run.config);
  folder.finish();
}

}  // namespace quire
