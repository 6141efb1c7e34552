#include "core/allocator.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>

#include "core/check.h"

namespace quire {

namespace {

constexpr size_t kAlignment = 64;

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

void count_in(AllocatorStats& stats, size_t bytes) {
  stats.bytes_in_use += static_cast<int64_t>(bytes);
  stats.peak_bytes = std::max(stats.peak_bytes, stats.bytes_in_use);
}

}  // namespace

// Lists all caching allocators. fork() copies one thread only, so a mutex that another thread holds would stay locked
// in the child for ever: every mutex is locked before fork() and unlocked after it, in both processes.
struct ForkGuard {
  static ForkGuard& get() {
    static ForkGuard* const guard = new ForkGuard;  // never destroyed: allocators may outlive statics
    return *guard;
  }
  void add(CachingAllocator* allocator) {
    const std::lock_guard lock(mutex);
    all.push_back(allocator);
  }
  void remove(CachingAllocator* allocator) {
    const std::lock_guard lock(mutex);
    std::erase(all, allocator);
  }

 private:
  ForkGuard() { ::pthread_atfork(&take, &give_back, &give_back); }
  static void take() {
    get().mutex.lock();
    for (CachingAllocator* allocator : get().all) allocator->mutex_.lock();
  }
  static void give_back() {
    for (CachingAllocator* allocator : get().all) allocator->mutex_.unlock();
    get().mutex.unlock();
  }

  std::mutex mutex;
  std::vector<CachingAllocator*> all;
};

Allocator::~Allocator() = default;

CachingAllocator::CachingAllocator() {
  ForkGuard::get().add(this);
}

CachingAllocator::~CachingAllocator() {
  ForkGuard::get().remove(this);
  for (const auto& [capacity, block] : free_) std::free(block);
}

void* CachingAllocator::system_allocate(size_t bytes) {
  return std::aligned_alloc(kAlignment, bytes);
}

void CachingAllocator::system_deallocate(void* pointer, size_t) {
  std::free(pointer);
}

void* CachingAllocator::allocate(size_t bytes) {
  const size_t requested = rounded(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = free_.lower_bound({requested, nullptr});
  if (found != free_.end() && found->first <= requested + requested / 8) {
    void* block = found->second;
    capacity_[block] = found->first;
    free_.erase(found);
    count_in(stats_, requested);
    return block;
  }
  void* block = system_allocate(requested);
  if (block == nullptr) {
    // Frees the cached blocks of other sizes, which may be enough for this request.
    for (const auto& [capacity, cached] : free_) {
      system_deallocate(cached, capacity);
      stats_.bytes_from_system -= static_cast<int64_t>(capacity);
    }
    free_.clear();
    block = system_allocate(requested);
  }
  if (block == nullptr) {
    fail(ErrorKind::memory,
         "out of memory: {} bytes requested, {} in use; use fewer rows, a shorter subsequence or a smaller model",
         requested, stats_.bytes_in_use);
  }
  capacity_[block] = requested;
  stats_.bytes_from_system += static_cast<int64_t>(requested);
  ++stats_.system_allocations;
  count_in(stats_, requested);
  return block;
}

void CachingAllocator::deallocate(void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = capacity_.find(pointer);
  free_.emplace(found->second, pointer);
  capacity_.erase(found);
  stats_.bytes_in_use -= static_cast<int64_t>(rounded(bytes));
}

AllocatorStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.bytes_in_use;
}

void CachingAllocator::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& [capacity, block] : free_) {
    system_deallocate(block, capacity);
    stats_.bytes_from_system -= static_cast<int64_t>(capacity);
  }
  free_.clear();
}

CountingAllocator::~CountingAllocator() {
  trim();  // the base class must find nothing to free
}

void* CountingAllocator::system_allocate(size_t bytes) {
  void* const pointer = reinterpret_cast<void*>(next_);
  next_ += bytes;
  return pointer;
}

void CountingAllocator::system_deallocate(void*, size_t) {}

}  // namespace quire
