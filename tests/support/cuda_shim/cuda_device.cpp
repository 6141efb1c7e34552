// CUDA kernels on the host: memory from malloc, block by block, so that AddressSanitizer sees every overrun; kernels on
// fibers.
#include <cublasLt.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "kernels/cuda/bind.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cuda/waits.h"
#include "tests/support/cuda_device.h"
#include "tests/support/cuda_shim/device_memory.h"

namespace quire::cuda {

cudaStream_t stream() {
  return nullptr;
}

}  // namespace quire::cuda

namespace quire::shim {

void on_stream(cudaStream_t, std::function<void()> work) {  // NOLINT: threads keep it
  work();
}

}  // namespace quire::shim

namespace quire::test {

namespace {

class ExactAllocator : public Allocator {
 public:
  explicit ExactAllocator(bool of_device) : of_device_(of_device) {}
  // Filled with not-a-number: what is read before it is written shows. Aligned as CUDA's memory is.
  void* allocate(size_t bytes) override {
    void* block = nullptr;
    if (posix_memalign(&block, 256, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
    std::memset(block, 0xff, bytes);
    if (of_device_) shim::add_device_memory(block, bytes);
    const std::lock_guard lock(mutex_);
    stats_.bytes_in_use += static_cast<int64_t>(bytes);
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes_in_use);
    return block;
  }
  void deallocate(void* pointer, size_t bytes) override {
    shim::remove_device_memory(pointer);
    std::free(pointer);
    const std::lock_guard lock(mutex_);
    stats_.bytes_in_use -= static_cast<int64_t>(bytes);
  }
  AllocatorStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() override {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.bytes_in_use;
  }

 private:
  bool of_device_;
  mutable std::mutex mutex_;  // ranks may be threads
  AllocatorStats stats_;
};

std::atomic<int64_t> g_waits = 0;

class HostInPlaceOfGpu : public DeviceBackend {
 public:
  std::string name() const override { return "cuda_shim"; }
  Allocator& allocator() override { return allocator_; }
  Allocator& host_allocator() override { return host_allocator_; }
  Memory memory() const override { return {}; }
  bool is_asynchronous() const override { return true; }
  void copy_to_host(void* host, const void* device, size_t bytes) override {
    ++g_waits;
    const shim::DeviceMemoryOpen open;
    std::memcpy(host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    const shim::DeviceMemoryOpen open;
    std::memcpy(device, host, bytes);
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    const shim::DeviceMemoryOpen open;
    std::memcpy(to, from, bytes);
  }
  // Copies are made as late as allowed, so that a value that is read too early is NaN.
  void fetch(const std::vector<Copy>& copies) override {
    fetches_.insert(fetches_.end(), copies.begin(), copies.end());
  }
  void await_fetched() override {
    const shim::DeviceMemoryOpen open;
    for (const Copy& copy : std::exchange(fetches_, {})) std::memcpy(copy.to, copy.from, copy.bytes);
  }
  void zero(void* device, size_t bytes) override {
    const shim::DeviceMemoryOpen open;
    std::memset(device, 0, bytes);
  }
  void synchronize() override { ++g_waits; }

 private:
  ExactAllocator allocator_{true}, host_allocator_{false};
  static thread_local std::vector<Copy> fetches_;  // each rank's own
};
thread_local std::vector<DeviceBackend::Copy> HostInPlaceOfGpu::fetches_;

bool put_in_place() {
  register_device_backend(DeviceKind::cuda, std::make_unique<HostInPlaceOfGpu>());
  cuda::bind_all();
  return true;
}

}  // namespace

// Before main: whoever asks for a GPU finds this one.
const bool g_in_place = put_in_place();

int64_t waits_for_device() {
  return g_waits;
}

std::string missing_cuda_device() {
  return g_in_place ? "" : "never";
}

}  // namespace quire::test
