// Repeats the calls of steps as graphs (run.graphs).
#pragma once

#include <string>
#include <vector>

#include "core/device.h"

namespace quire {

// While it lives, the device collects calls and repeats them as graphs, if `wanted` is set and the device supports it.
class Graphs {
 public:
  Graphs(DeviceBackend& device, bool wanted);
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Returns a line for the log when graphs are wanted and the device has none; otherwise nothing.
  std::vector<std::string> lines() const;
  // Returns a line for the log about the calls since the last report, divided by `steps`; evaluations between the steps
  // count. Empty when the device has no graphs or there were no steps.
  std::vector<std::string> report(int64_t steps);

 private:
  DeviceBackend& device_;
  bool wanted_;
  bool used_;
  DeviceBackend::CallCounts reported_;
};

}  // namespace quire
