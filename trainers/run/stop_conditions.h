// The conditions that stop a run at the end of its step: a request such as a signal, a file named STOP in the run
// directory, the wall time.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/config/config_value.h"
#include "trainers/run/signals.h"

namespace quire {

class StopConditions {
 public:
  using Clock = std::chrono::steady_clock;
  // Wall time counts from `started`. The request must outlive this.
  StopConditions(const StopRequest& request, Clock::time_point started, const std::filesystem::path& run_directory,
                 std::optional<Duration> max_wall_time);

  // Returns the reason to stop; empty while the run may continue. Cheap enough for every step, because the file is
  // looked for only once a second.
  std::string reason();

  // Removes the file, so that the run can be resumed. Throws Error(disk) when it cannot be removed.
  void remove_file() const;

 private:
  const StopRequest& request_;
  Clock::time_point started_;
  std::filesystem::path file_;
  std::optional<Duration> max_wall_time_;
  std::optional<Clock::time_point> looked_;
  bool file_seen_ = false;
};

}  // namespace quire
