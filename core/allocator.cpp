#include "core/allocator.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "core/check.h"

namespace quire {

namespace {

constexpr size_t kAlignment = 64;
// As much is cached without a question.
constexpr int64_t kFewBytes = int64_t{64} << 20;
// Blocks from this size on are mapped each by itself, so that what is given back leaves no holes in the heap.
constexpr size_t kMappedBytes = size_t{1} << 20;

size_t rounded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr size_t kPage = 4096;

// Maps a block that begins in its first page, each at another place: the processor takes a store and a load with the
// same last twelve bits for one that waits for the other, as in a sum of tensors that all begin with a page.
void* map_block(size_t bytes) {
  static std::atomic<size_t> blocks = 0;
  void* const pages = ::mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr
                             : static_cast<std::byte*>(pages) + blocks++ * 5 % (kPage / kAlignment) * kAlignment;
}

void free_block(void* block, size_t bytes) {
  if (bytes < kMappedBytes) return std::free(block);
  ::munmap(static_cast<std::byte*>(block) - reinterpret_cast<uintptr_t>(block) % kPage, bytes + kPage);
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
  for (const auto& [block, freed] : free_) free_block(block.second, block.first);
}

void* CachingAllocator::system_allocate(size_t bytes) {
  return bytes < kMappedBytes ? std::aligned_alloc(kAlignment, bytes) : map_block(bytes);
}

void CachingAllocator::system_deallocate(void* pointer, size_t bytes) {
  free_block(pointer, bytes);
}

void* CachingAllocator::allocate(size_t bytes) {
  const size_t requested = rounded(bytes);
  const std::lock_guard lock(mutex_);
  const auto found = free_.lower_bound({requested, nullptr});
  if (found != free_.end() && found->first.first <= requested + requested / 8) {
    void* block = found->first.second;
    capacity_[block] = found->first.first;
    free_.erase(found);
    count_in(stats_, requested);
    max_in_use_ = std::max(max_in_use_, stats_.bytes_in_use);
    return block;
  }
  const int64_t added = static_cast<int64_t>(requested);
  const int64_t limit = std::max(kFewBytes, std::max(max_in_use_, stats_.bytes_in_use + added) / 2 * 3);
  // A little more than what is too much, so that this is not done for each request.
  if (stats_.bytes_from_system + added > limit) shrink(limit / 8 * 7 - added);
  void* block = system_allocate(requested);
  if (block == nullptr) {
    shrink(0);  // blocks of other sizes may be enough for this request
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
  max_in_use_ = std::max(max_in_use_, stats_.bytes_in_use);
  return block;
}

void CachingAllocator::deallocate(void* pointer, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = capacity_.find(pointer);
  free_.emplace(std::pair(found->second, pointer), ++calls_);
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
  shrink(0);
  max_in_use_ = stats_.bytes_in_use;
}

void CachingAllocator::shrink(int64_t bytes) {
  std::vector<std::pair<int64_t, std::pair<size_t, void*>>> oldest;
  for (const auto& [block, freed] : free_) oldest.emplace_back(freed, block);
  std::sort(oldest.begin(), oldest.end());
  for (const auto& [freed, block] : oldest) {
    if (stats_.bytes_from_system <= bytes) return;
    free_.erase(block);
    system_deallocate(block.second, block.first);
    stats_.bytes_from_system -= static_cast<int64_t>(block.first);
  }
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
