// What kernels take beside their operands while a call lasts, for plans: a call on Device::meta computes nothing, and
// takes from the counting allocator what the kernels of the planned device would take, so that it is in the peak.
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

// The kind of such a plan; meta when none is being made.
DeviceKind planned_device();

}  // namespace quire
