#include "tests/support/cuda_shim/device_memory.h"

#include <mutex>
#include <unordered_map>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(block, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(block, bytes) static_cast<void>(0)
#endif

namespace quire::shim {

namespace {

struct DeviceMemory {
  std::mutex mutex;
  bool guarded = false;
  int open = 0;
  std::unordered_map<void*, size_t> blocks;

  static DeviceMemory& get() {
    static DeviceMemory* const memory = new DeviceMemory;  // tensors may outlive statics
    return *memory;
  }
};

}  // namespace

void guard_device_memory() {
  DeviceMemory& memory = DeviceMemory::get();
  const std::lock_guard lock(memory.mutex);
  memory.guarded = true;
}

void add_device_memory(void* block, [[maybe_unused]] size_t bytes) {
  DeviceMemory& memory = DeviceMemory::get();
  const std::lock_guard lock(memory.mutex);
  if (!memory.guarded) return;
  memory.blocks.emplace(block, bytes);
  if (memory.open == 0) ASAN_POISON_MEMORY_REGION(block, bytes);
}

void remove_device_memory(void* block) {
  DeviceMemory& memory = DeviceMemory::get();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.blocks.find(block);
  if (found == memory.blocks.end()) return;
  ASAN_UNPOISON_MEMORY_REGION(block, found->second);
  memory.blocks.erase(found);
}

DeviceMemoryOpen::DeviceMemoryOpen() {
  DeviceMemory& memory = DeviceMemory::get();
  const std::lock_guard lock(memory.mutex);
  if (memory.open++ > 0) return;
  for ([[maybe_unused]] const auto& [block, bytes] : memory.blocks) ASAN_UNPOISON_MEMORY_REGION(block, bytes);
}

DeviceMemoryOpen::~DeviceMemoryOpen() {
  DeviceMemory& memory = DeviceMemory::get();
  const std::lock_guard lock(memory.mutex);
  if (--memory.open > 0) return;
  for ([[maybe_unused]] const auto& [block, bytes] : memory.blocks) ASAN_POISON_MEMORY_REGION(block, bytes);
}

}  // namespace quire::shim
