// Functions that asynchronous_device.cpp adds to those of CUDA.
#pragma once

#include <cstddef>

namespace quire::shim {

// Bytes that cudaMalloc gives at most beside those that it has given; more than anybody asks for until it is called.
void leave_device_memory(size_t bytes);

}  // namespace quire::shim
