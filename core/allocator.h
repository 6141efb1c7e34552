// Byte allocators with counters. Tensors get their storage here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace quire {

struct AllocatorStats {
  int64_t bytes_in_use = 0;        // handed out now
  int64_t peak_bytes = 0;          // most handed out at once since reset_peak()
  int64_t bytes_from_system = 0;   // handed out plus cached
  int64_t system_allocations = 0;  // calls that reached the operating system
};

class Allocator {
 public:
  virtual ~Allocator();
  // Never returns null for bytes > 0; throws Error(memory) with the size when the system refuses.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* pointer, size_t bytes) = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Returns cached blocks to the system.
  virtual void trim() {}
};

// Keeps freed blocks and hands them out again: a training step has the same sizes each time, so after the first
// steps nothing is allocated from the system. Best fit with at most an eighth of waste. Thread-safe.
class CachingAllocator : public Allocator {
 public:
  ~CachingAllocator() override;
  void* allocate(size_t bytes) override;
  void deallocate(void* pointer, size_t bytes) override;
  AllocatorStats stats() const override;
  void reset_peak() override;
  void trim() override;

 protected:
  // Aligned to 64 bytes; nullptr when there is no memory.
  virtual void* system_allocate(size_t bytes);
  virtual void system_deallocate(void* pointer, size_t bytes);

 private:
  mutable std::mutex mutex_;
  std::multimap<size_t, void*> free_;           // capacity -> block
  std::unordered_map<void*, size_t> capacity_;  // of blocks handed out
  AllocatorStats stats_;
};

// Device::meta: what the same requests would hold on a device, with addresses that must never be read.
class CountingAllocator : public CachingAllocator {
 public:
  ~CountingAllocator() override;

 protected:
  void* system_allocate(size_t bytes) override;
  void system_deallocate(void* pointer, size_t bytes) override;

 private:
  uintptr_t next_ = 64;  // never null; blocks do not overlap
};

}  // namespace quire
