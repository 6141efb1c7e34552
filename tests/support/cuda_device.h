// The device that tests of CUDA code run on. Two sources define this: one asks the loaded backends for a GPU, the other
// uses the host in its place.
#pragma once

#include <string>

namespace quire::test {

// Returns why no tensors can be made on DeviceKind::cuda; empty when they can.
std::string missing_cuda_device();

}  // namespace quire::test
