// Small uploads by kernels, which run in order with all other kernels and need no buffer or second stream.
#pragma once

#include <cstddef>

namespace quire::cuda {

inline constexpr size_t kMaxStored = 1024;  // bytes

// Copies at most kMaxStored bytes of the host, which the kernel gets as parameters, to the device or to pinned memory.
void store_bytes(void* to, const void* from, size_t bytes);

}  // namespace quire::cuda
