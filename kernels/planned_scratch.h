// The scratch of kernels, for plans: a call on Device::meta computes nothing, and allocates from the counting allocator
// what the kernels of the planned device would allocate, so that the peak includes it.
#pragma once

#include "core/device.h"

namespace quire {

// While it lives, calls on meta tensors allocate the scratch of the kernels of `kind`. Only one may live at a time.
// timed_products: also the scratch of a step whose products are timed.
class PlannedScratch {
 public:
  explicit PlannedScratch(DeviceKind kind, bool timed_products = false);
  ~PlannedScratch();
  PlannedScratch(const PlannedScratch&) = delete;
  PlannedScratch& operator=(const PlannedScratch&) = delete;
};

// Returns the kind of the current plan; meta when there is none.
DeviceKind planned_device();

}  // namespace quire
