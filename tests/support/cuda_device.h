// The device that tests of CUDA code run on. Two sources define this: one asks the loaded backends for a GPU, the other
// puts the host in its place.
#pragma once

#include <string>

namespace quire::test {

// Empty when tensors can be made on DeviceKind::cuda; otherwise why not.
std::string missing_cuda_device();

}  // namespace quire::test
