// Small uploads as kernels, in order with all others: without a buffer or another stream.
#pragma once

#include <cstddef>

namespace quire::cuda {

inline constexpr size_t kMostStored = 1024;  // bytes

// Copies up to kMostStored bytes of the host, which come as parameters of the kernel, to the device or to pinned
// memory.
void store_bytes(void* to, const void* from, size_t bytes);

}  // namespace quire::cuda
