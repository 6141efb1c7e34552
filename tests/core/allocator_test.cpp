#include "core/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"

namespace quire {
namespace {

// Counts the blocks of the system, and refuses beyond a limit.
class LimitedAllocator final : public CachingAllocator {
 public:
  explicit LimitedAllocator(size_t limit) : limit_(limit) {}
  ~LimitedAllocator() override { trim(); }
  size_t allocated = 0;

 protected:
  void* system_allocate(size_t bytes) override {
    if (allocated + bytes > limit_) return nullptr;
    allocated += bytes;
    return CachingAllocator::system_allocate(bytes);
  }
  void system_deallocate(void* pointer, size_t bytes) override {
    allocated -= bytes;
    CachingAllocator::system_deallocate(pointer, bytes);
  }

 private:
  size_t limit_;
};

TEST(CachingAllocator, GivesAFreedBlockAgain) {
  CachingAllocator allocator;
  void* const first = allocator.allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0U);
  allocator.deallocate(first, 1000);
  void* const second = allocator.allocate(960);  // the block has 1024 bytes
  EXPECT_EQ(second, first);
  void* const third = allocator.allocate(960);
  EXPECT_NE(third, first);
  EXPECT_EQ(allocator.stats().system_allocations, 2);
  allocator.deallocate(second, 960);
  allocator.deallocate(third, 960);
}

TEST(CachingAllocator, WastesAtMostAnEighth) {
  CachingAllocator allocator;
  void* const large = allocator.allocate(4096);
  allocator.deallocate(large, 4096);
  void* const small = allocator.allocate(3584);  // 4096 is 512 more, an eighth of 3584 is 448
  EXPECT_NE(small, large);
  void* const near = allocator.allocate(3648);  // an eighth of it is 456 and it lacks 448
  EXPECT_EQ(near, large);
  allocator.deallocate(small, 3584);
  allocator.deallocate(near, 3648);
}

TEST(CachingAllocator, TakesTheBestFitAndTheLowestAddress) {
  CachingAllocator allocator;
  void* const a = allocator.allocate(1024);
  void* const b = allocator.allocate(1024);
  void* const larger = allocator.allocate(1088);
  allocator.deallocate(larger, 1088);
  allocator.deallocate(std::max(a, b), 1024);
  allocator.deallocate(std::min(a, b), 1024);
  void* const first = allocator.allocate(1024);
  void* const second = allocator.allocate(1088);
  EXPECT_EQ(first, std::min(a, b));
  EXPECT_EQ(second, larger);
  allocator.deallocate(first, 1024);
  allocator.deallocate(second, 1088);
}

// Two tensors that grow by a little in each step, and others that stay.
TEST(CachingAllocator, KeepsLittleOfSizesThatChange) {
  LimitedAllocator allocator(size_t{1} << 40);
  constexpr size_t kStays = size_t{100} << 20;
  int64_t calls_for_what_stays = 0;
  for (size_t step = 0; step < 100; ++step) {
    const size_t grows = (size_t{20} << 20) + (step << 20);
    const int64_t calls = allocator.stats().system_allocations;
    void* const stays = allocator.allocate(kStays);
    calls_for_what_stays += allocator.stats().system_allocations - calls;
    void* const first = allocator.allocate(grows);
    void* const second = allocator.allocate(grows);
    allocator.deallocate(first, grows);
    allocator.deallocate(second, grows);
    allocator.deallocate(stays, kStays);
    const AllocatorStats stats = allocator.stats();
    EXPECT_EQ(stats.bytes_from_system, static_cast<int64_t>(allocator.allocated));
    EXPECT_LE(stats.bytes_from_system, stats.peak_bytes / 2 * 3) << step;
  }
  EXPECT_EQ(calls_for_what_stays, 1) << "what is used in each step is not given back";
}

TEST(CachingAllocator, Counts) {
  CachingAllocator allocator;
  void* const a = allocator.allocate(100);  // takes 128
  void* const b = allocator.allocate(64);
  allocator.deallocate(a, 100);
  AllocatorStats stats = allocator.stats();
  EXPECT_EQ(stats.bytes_in_use, 64);
  EXPECT_EQ(stats.peak_bytes, 192);
  EXPECT_EQ(stats.bytes_from_system, 192);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().peak_bytes, 64);
  allocator.trim();
  stats = allocator.stats();
  EXPECT_EQ(stats.bytes_from_system, 64);
  EXPECT_EQ(stats.bytes_in_use, 64);
  allocator.deallocate(b, 64);
  EXPECT_EQ(allocator.stats().bytes_in_use, 0);
}

TEST(CachingAllocator, NothingIsABlockOfItsOwn) {
  CachingAllocator allocator;
  void* const a = allocator.allocate(0);
  void* const b = allocator.allocate(0);
  EXPECT_NE(a, nullptr);
  EXPECT_NE(a, b);
  allocator.deallocate(a, 0);
  allocator.deallocate(b, 0);
  EXPECT_EQ(allocator.stats().bytes_in_use, 0);
}

TEST(CachingAllocator, GivesItsCacheUpBeforeItFails) {
  LimitedAllocator allocator(4096);
  void* const cached = allocator.allocate(3072);
  allocator.deallocate(cached, 3072);
  void* const large = allocator.allocate(4096);
  EXPECT_EQ(allocator.allocated, 4096U);
  EXPECT_ERROR(allocator.allocate(64), ErrorKind::memory, "64 bytes requested, 4096 in use");
  allocator.deallocate(large, 4096);
  EXPECT_EQ(allocator.allocate(4096), large) << "a failure leaves the allocator usable";
  allocator.deallocate(large, 4096);
}

TEST(CountingAllocator, CountsWhatItNeverHas) {
  CountingAllocator allocator;
  constexpr size_t kHuge = size_t{1} << 50;
  void* const a = allocator.allocate(kHuge);
  void* const b = allocator.allocate(kHuge);
  EXPECT_GE(reinterpret_cast<uintptr_t>(b), reinterpret_cast<uintptr_t>(a) + kHuge) << "blocks do not overlap";
  EXPECT_EQ(allocator.stats().peak_bytes, static_cast<int64_t>(2 * kHuge));
  allocator.deallocate(a, kHuge);
  EXPECT_EQ(allocator.allocate(kHuge), a);
  EXPECT_EQ(allocator.stats().system_allocations, 2);
}

}  // namespace
}  // namespace quire
