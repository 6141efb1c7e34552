// Byte allocators with counters. Tensors get their storage here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quire {

struct AllocatorStats {
  int64_t bytes_in_use = 0;        // in blocks that callers hold
  int64_t peak_bytes = 0;          // largest bytes_in_use since reset_peak()
  int64_t bytes_from_system = 0;   // in use and cached
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

// Keeps freed blocks in a cache and reuses them: a training step asks for the same sizes each time, so after the first
// steps nothing is allocated from the system. It takes the best fit, with at most an eighth of waste, and of several
// the one with the lowest address: which blocks are free decides, and not the order in which they became so.
// Thread-safe; a child made by fork() finds no allocator in the middle of another thread's call.
class CachingAllocator : public Allocator {
 public:
  CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
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
  friend struct ForkGuard;
  mutable std::mutex mutex_;
  std::set<std::pair<size_t, void*>> free_;     // capacity and block
  std::unordered_map<void*, size_t> capacity_;  // of blocks handed out
  AllocatorStats stats_;
};

// The allocator of meta tensors: it counts what the same requests would take on a device. Its addresses are never read.
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
