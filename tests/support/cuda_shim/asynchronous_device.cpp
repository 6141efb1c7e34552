// The host in the GPU's place, with the memory and the streams of kernels/cuda/device/memory.cpp: what is given to a
// stream is done by its thread, while the caller goes on. What no event orders comes in any order.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "kernels/cuda/bind.h"
#include "kernels/cuda/device/memory.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/cuda_device.h"
#include "tests/support/cuda_shim/device_limit.h"

namespace quire::shim {

namespace {

struct Device {
  std::mutex mutex;
  size_t max_bytes = size_t{1} << 40;
  size_t taken = 0;
  std::unordered_map<void*, size_t> blocks;

  static Device& get() {
    static Device* const device = new Device;  // tensors may outlive statics
    return *device;
  }
};

void* new_block(size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, 256, bytes == 0 ? 1 : bytes) != 0) std::abort();
  std::memset(block, 0xff, bytes);  // no number: what is read before it is written shows
  return block;
}

}  // namespace

void leave_device_memory(size_t bytes) {
  Device& device = Device::get();
  const std::lock_guard lock(device.mutex);
  device.max_bytes = device.taken + bytes;
}

void on_stream(cudaStream_t stream, std::function<void()> work) {
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> given(static_cast<std::function<void()>*>(data));
    (*given)();
  };
  cudaLaunchHostFunc(stream, run, std::make_unique<std::function<void()>>(std::move(work)).release());
}

}  // namespace quire::shim

using quire::shim::Device;

cudaError_t cudaMalloc(void** block, size_t bytes) {
  Device& device = Device::get();
  {
    const std::lock_guard lock(device.mutex);
    if (device.taken + bytes > device.max_bytes) return cudaErrorMemoryAllocation;
    device.taken += bytes;
  }
  *block = quire::shim::new_block(bytes);
  quire::shim::add_device_memory(*block, bytes);
  const std::lock_guard lock(device.mutex);
  device.blocks.emplace(*block, bytes);
  return cudaSuccess;
}

// Waits for everything, as CUDA's does.
cudaError_t cudaFree(void* block) {
  cudaDeviceSynchronize();
  Device& device = Device::get();
  {
    const std::lock_guard lock(device.mutex);
    const auto found = device.blocks.find(block);
    if (found == device.blocks.end()) return cudaErrorInvalidValue;
    device.taken -= found->second;
    device.blocks.erase(found);
  }
  quire::shim::remove_device_memory(block);
  std::free(block);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned) {
  *block = quire::shim::new_block(bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** block, size_t bytes) {
  return cudaHostAlloc(block, bytes, 0);
}
cudaError_t cudaFreeHost(void* block) {
  cudaDeviceSynchronize();
  std::free(block);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Device& device = Device::get();
  const std::lock_guard lock(device.mutex);
  *total = device.max_bytes;
  *free = device.max_bytes - std::min(device.taken, device.max_bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

namespace quire::test {

namespace {

bool put_in_place() {
  shim::guard_device_memory();
  register_device_backend(DeviceKind::cuda, cuda::make_memory("cuda_shim"));
  cuda::bind_all();
  // QUIRE_TEST_SLOW_STREAM: the number of a stream that lags behind the others.
  const char* const slow = std::getenv("QUIRE_TEST_SLOW_STREAM");
  if (slow != nullptr) shim::slow_down_stream(std::stoi(slow));
  return true;
}

}  // namespace

// Before main: whoever asks for a GPU finds this one.
const bool g_in_place = put_in_place();

std::string missing_cuda_device() {
  return g_in_place ? "" : "never";
}

}  // namespace quire::test
