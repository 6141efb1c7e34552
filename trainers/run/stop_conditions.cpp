#include "trainers/run/stop_conditions.h"

#include "core/check.h"

namespace quire {

StopConditions::StopConditions(const StopRequest& request, Clock::time_point started,
                               const std::filesystem::path& run_directory, std::optional<Duration> max_wall_time)
    : request_(request), started_(started), file_(run_directory / "STOP"), max_wall_time_(max_wall_time) {}

std::string StopConditions::reason() {
  if (std::string asked = request_.reason(); !asked.empty()) return asked;
  const Clock::time_point now = Clock::now();
  if (max_wall_time_ && now - started_ >= std::chrono::seconds(max_wall_time_->seconds)) {
    return "run.max_wall_time: " + write_value(*max_wall_time_).text;
  }
  if (!file_seen_ && (!looked_ || now - *looked_ >= std::chrono::seconds(1))) {
    looked_ = now;
    std::error_code ignored;
    file_seen_ = std::filesystem::exists(file_, ignored);
  }
  return file_seen_ ? file_.string() : "";
}

void StopConditions::remove_file() const {
  std::error_code error;
  std::filesystem::remove(file_, error);
  if (error) fail(ErrorKind::disk, "{}: cannot be removed: {}; remove it by hand", file_.string(), error.message());
}

}  // namespace quire
