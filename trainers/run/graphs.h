// Calls of steps that are repeated as graphs (run.graphs).
#pragma once

#include <string>
#include <vector>

#include "core/device.h"

namespace quire {

// While it lives, the device collects calls and repeats them as graphs, where that is wanted and it can.
class Graphs {
 public:
  Graphs(DeviceBackend& device, bool wanted);
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // For the log: that there are none. Empty, or one line.
  std::vector<std::string> lines() const;
  // What has been collected since the last time, in `steps` steps: for the log. Empty where nothing is collected.
  std::vector<std::string> report(int64_t steps);

 private:
  DeviceBackend& device_;
  bool wanted_;
  bool used_;
  DeviceBackend::CallCounts reported_;
};

}  // namespace quire
