// Small uploads, copies and zeros as kernels, in order with all others: without a buffer or another stream, and with
// addresses that a graph can be given anew.
#pragma once

#include <cstddef>

namespace quire::cuda {

inline constexpr size_t kMostStored = 1024;  // bytes

// Copies up to kMostStored bytes of the host, which come as parameters of the kernel, to the device or to pinned
// memory.
void store_bytes(void* to, const void* from, size_t bytes);

// Between places of the device or of pinned memory, which do not overlap.
void copy_bytes(void* to, const void* from, size_t bytes);
void clear_bytes(void* to, size_t bytes);

}  // namespace quire::cuda
