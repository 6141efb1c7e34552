// Functions that asynchronous_device.cpp adds to those of CUDA.
#pragma once

#include <cstddef>

namespace quire::shim {

// Limits the bytes that cudaMalloc gives in addition to those that it has given; by default there is practically no
// limit.
void leave_device_memory(size_t bytes);

}  // namespace quire::shim
