// Byte allocators with counters. Tensors get their storage here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace quire {

struct AllocatorStats {
  int64_t bytes_in_use = 0;        // bytes in blocks that callers own
  int64_t peak_bytes = 0;          // largest bytes_in_use since reset_peak()
  int64_t bytes_from_system = 0;   // bytes in use and cached
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
// steps nothing is allocated from the system. It takes the smallest block that fits with at most an eighth of waste,
// and among equal ones the one with the lowest address, so the choice depends only on which blocks are free and not on
// the order in which they became free. Where sizes change from step to step, as with a growing document, what is cached
// would be many times what is used: beyond half of the largest bytes in use since trim(), the blocks that were unused
// for the longest time go back to the system. Thread-safe; fork() waits until no other thread is inside an allocator,
// so a child can allocate.
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
  // Returns memory aligned to 64 bytes, or nullptr when there is none.
  virtual void* system_allocate(size_t bytes);
  virtual void system_deallocate(void* pointer, size_t bytes);

 private:
  friend struct ForkGuard;
  // Gives back cached blocks, those first that were freed first, until no more than `bytes` are in use and cached.
  void shrink(int64_t bytes);

  mutable std::mutex mutex_;
  std::map<std::pair<size_t, void*>, int64_t> free_;  // capacity and block: the number of the call that freed it
  std::unordered_map<void*, size_t> capacity_;        // capacity of each block that a caller owns
  AllocatorStats stats_;
  int64_t max_in_use_ = 0;
  int64_t calls_ = 0;
};

// The allocator of meta tensors: it counts the bytes that the same requests would take on a device. Its addresses are
// never read.
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
