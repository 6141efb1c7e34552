// The scratch of kernels, for plans: a call on Device::meta computes nothing, and allocates from the counting allocator
// what the kernels of the planned device would allocate, so that the peak includes it.
#pragma once

#include "core/device.h"

namespace quire {

// While it lives, calls on meta tensors take what the kernels of `kind` take. One at a time.
class PlannedScratch {
 public:
  explicit PlannedScratch(DeviceKind kind);
  ~PlannedScratch();
  PlannedScratch(const PlannedScratch&) = delete;
  PlannedScratch& operator=(const PlannedScratch&) = delete;
};

// Returns the kind of the current plan; meta when there is none.
DeviceKind planned_device();

}  // namespace quire
