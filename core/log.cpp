#include "core/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

constexpr const char* kEraseLine = "\r\033[K";

thread_local int speaking_rank = 0;

// Returns the prefix of a warning or an error.
std::string speaker() {
  return speaking_rank == 0 ? "" : fmt::format("rank {}: ", speaking_rank);
}

class Log {
 public:
  Log() : console_("console", std::make_shared<spdlog::sinks::stderr_sink_mt>()) { console_.set_pattern("%v"); }

  void write(spdlog::level::level_enum level, const char* prefix, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!status_.empty()) std::fputs(kEraseLine, stderr);
    console_.log(level, spdlog::string_view_t(prefix + text));
    if (!status_.empty()) std::fputs(status_.c_str(), stderr);
    if (file_) file_->log(level, spdlog::string_view_t(text));
  }

  void write_file(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (file_) file_->log(spdlog::level::info, spdlog::string_view_t(text));
  }

  void open_file(const std::filesystem::path& path) {
    const std::lock_guard lock(mutex_);
    try {
      auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
      file_ = std::make_unique<spdlog::logger>("file", std::move(sink));
    } catch (const spdlog::spdlog_ex& error) {
      fail(ErrorKind::disk, "{}: the log cannot be opened: {}", path.string(), error.what());
    }
    file_->set_pattern("%Y-%m-%d %H:%M:%S %l: %v");
    file_->flush_on(spdlog::level::info);
    path_ = path;
    failure_.clear();
    file_->set_error_handler([this](const std::string& text) {  // under the lock
      failure_ = text.substr(text.rfind(": ") == std::string::npos ? 0 : text.rfind(": ") + 2);
    });
  }

  void require_written() {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) return;
    file_.reset();  // the error itself is not written there
    fail(ErrorKind::disk, "{}: the log cannot be written: {}", path_.string(), std::exchange(failure_, ""));
  }

  void show_status(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (status_.empty() && text.empty()) return;
    status_ = text;
    std::fputs(kEraseLine, stderr);
    std::fputs(status_.c_str(), stderr);
    std::fflush(stderr);
  }

 private:
  std::mutex mutex_;
  spdlog::logger console_;
  std::unique_ptr<spdlog::logger> file_;
  std::filesystem::path path_;  // path of the log file
  std::string failure_;         // the error from writing to it
  std::string status_;
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

LogVoice::LogVoice(int rank) : previous_(std::exchange(speaking_rank, rank)) {}
LogVoice::~LogVoice() {
  speaking_rank = previous_;
}

void log_info(const std::string& text) {
  if (speaking_rank == 0) the_log().write(spdlog::level::info, "", text);
}
void log_warn(const std::string& text) {
  the_log().write(spdlog::level::warn, "quire: warning: ", speaker() + text);
}
void log_error(const std::string& text) {
  the_log().write(spdlog::level::err, "quire: error: ", speaker() + text);
}
void log_file_only(const std::string& text) {
  if (speaking_rank == 0) the_log().write_file(text);
}
void log_to_file(const std::filesystem::path& path) {
  if (speaking_rank == 0) the_log().open_file(path);
}
void require_log_written() {
  the_log().require_written();
}
void show_status_line(const std::string& text) {
  if (speaking_rank == 0) the_log().show_status(text);
}

}  // namespace quire
