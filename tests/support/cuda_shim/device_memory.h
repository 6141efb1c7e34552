// Hides the memory of the device from the host. In a program that asks for it, AddressSanitizer stops every access to a
// block while no kernel or copy runs, as a GPU's memory would.
#pragma once

#include <cstddef>

namespace quire::shim {

// Guards blocks that are allocated from now on, in a program under AddressSanitizer; existing blocks are not guarded.
void guard_device_memory();
void add_device_memory(void* block, size_t bytes);
void remove_device_memory(void* block);

// While one lives, device memory is accessible.
class DeviceMemoryOpen {
 public:
  DeviceMemoryOpen();
  ~DeviceMemoryOpen();
  DeviceMemoryOpen(const DeviceMemoryOpen&) = delete;
  DeviceMemoryOpen& operator=(const DeviceMemoryOpen&) = delete;
};

}  // namespace quire::shim
