// How much memory calls take while they run.
#pragma once

#include <functional>
#include <vector>

#include "kernels/backend.h"

namespace quire::test {

// Returns the bytes of a device that each of the calls, one after the other, takes at most beside what is in use.
inline std::vector<int64_t> peak_bytes(Device device, const std::vector<std::function<void()>>& calls) {
  Allocator& allocator = device_backend(device.kind).allocator();
  const int64_t before = allocator.stats().bytes_in_use;
  std::vector<int64_t> peaks;
  for (const std::function<void()>& call : calls) {
    allocator.reset_peak();
    call();
    peaks.push_back(allocator.stats().peak_bytes - before);
  }
  return peaks;
}

}  // namespace quire::test
