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

  // A line for the log when graphs are wanted and the device has none; otherwise empty.
  std::vector<std::string> lines() const;
  // A line for the log about the calls since the last report, divided by `steps`; evaluations between the steps count.
  // Empty when the device has no graphs or there were no steps.
  std::vector<std::string> report(int64_t steps);

 private:
  DeviceBackend& device_;
  bool wanted_;
  bool used_;
  DeviceBackend::CallCounts reported_;
};

}  // namespace quire
