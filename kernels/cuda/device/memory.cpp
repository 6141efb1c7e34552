#include "kernels/cuda/device/memory.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/basic/store_bytes.h"
#include "kernels/cuda/nccl/nccl_connect.h"
#include "kernels/cuda/stream.h"

namespace quire::cuda {

namespace {

struct Streams {
  cudaStream_t compute = nullptr;
  // These run beside the kernels: uploads of new tensors, and copies from host memory.
  cudaStream_t copy = nullptr;
  cudaStream_t fetch = nullptr;
};

Streams& streams() {
  static Streams all;
  return all;
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

// Keeps freed blocks in the cache instead of giving them back to the driver. All kernels run on one stream, so the next
// kernel that gets a block runs after the last one that used it.
class GpuAllocator : public CachingAllocator {
 public:
  // Sets another allocator, which keeps blocks of this one and gives its unused blocks back when memory is short.
  void set_holder(Allocator* holder) { holder_ = holder; }
  void* allocate(size_t bytes) override {
    try {
      return CachingAllocator::allocate(bytes);
    } catch (const Error&) {
      holder_->trim();
      return CachingAllocator::allocate(bytes);
    }
  }

 protected:
  void* system_allocate(size_t bytes) override {
    void* block = nullptr;
    const cudaError_t status = cudaMalloc(&block, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error: the caller frees what it can and asks again
      return nullptr;
    }
    check(status);
    return block;
  }
  void system_deallocate(void* block, size_t) override { check(cudaFree(block)); }

 private:
  Allocator* holder_ = nullptr;
};

// Allocates host memory that has the same address for both sides.
class PinnedAllocator : public CachingAllocator {
 protected:
  void* system_allocate(size_t bytes) override {
    void* block = nullptr;
    const cudaError_t status = cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error: the caller reports what was too much
      return nullptr;
    }
    check(status);
    return block;
  }
  void system_deallocate(void* block, size_t) override { check(cudaFreeHost(block)); }
};

// Allocates memory that the copy stream writes. A block that kernels may still read is written after they have ended.
// Small uploads are made by kernels, into any memory.
class UploadAllocator : public Allocator {
 public:
  explicit UploadAllocator(GpuAllocator& from) : from_(from) { from_.set_holder(this); }

  void* allocate(size_t bytes) override {
    if (bytes <= kMaxStored) return from_.allocate(bytes);
    const std::lock_guard lock(mutex_);
    const size_t capacity = std::bit_ceil(std::max<size_t>(bytes, 512));
    if (free_[capacity].empty()) {
      void* const memory = take(capacity);
      // Kernels that use the block's previous contents may still run.
      const Block block{memory, make_event()};
      check(cudaEventRecord(block.last_use, stream()));
      free_[capacity].push_back(block);
    }
    // Takes the block that was freed longest ago, because its last use ends first.
    std::deque<Block>& free = free_[capacity];
    const Block block = free.front();
    free.pop_front();
    check(cudaStreamWaitEvent(streams().copy, block.last_use));
    used_.emplace(block.memory, block);
    return block.memory;
  }

  void deallocate(void* pointer, size_t bytes) override {
    if (bytes <= kMaxStored) return from_.deallocate(pointer, bytes);
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(pointer);
    // Destructors call this, so an error that stays is left to the next caller that meets it.
    static_cast<void>(cudaEventRecord(found->second.last_use, streams().compute));
    free_[std::bit_ceil(std::max<size_t>(bytes, 512))].push_back(found->second);
    used_.erase(found);
  }

  AllocatorStats stats() const override { return from_.stats(); }
  void reset_peak() override { from_.reset_peak(); }
  void trim() override {
    const std::lock_guard lock(mutex_);
    give_back();
  }

 private:
  struct Block {
    void* memory;
    cudaEvent_t last_use;
  };

  void* take(size_t capacity) {
    try {
      return from_.CachingAllocator::allocate(capacity);
    } catch (const Error&) {
      give_back();
      return from_.CachingAllocator::allocate(capacity);
    }
  }
  // Their next users run on the compute stream, after their last use.
  void give_back() {
    for (const auto& [capacity, blocks] : free_) {
      for (const Block& block : blocks) {
        from_.deallocate(block.memory, capacity);
        static_cast<void>(cudaEventDestroy(block.last_use));
      }
    }
    free_.clear();
  }

  GpuAllocator& from_;
  std::mutex mutex_;
  std::unordered_map<size_t, std::deque<Block>> free_;  // by capacity
  std::unordered_map<void*, Block> used_;
};

// Buffers in host memory that the GPU reads. The host continues as soon as it has filled one.
class PinnedBuffers {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;

  // Copies on a stream, in pieces of a buffer. Tensors of the device may lie in host memory.
  void copy(void* device, const void* host, size_t bytes, cudaStream_t on) {
    const std::lock_guard lock(mutex_);
    for (size_t at = 0; at < bytes; at += kBytes) {
      const size_t part = std::min(kBytes, bytes - at);
      Buffer& buffer = next(part);
      std::memcpy(buffer.memory, static_cast<const char*>(host) + at, part);
      check(cudaMemcpyAsync(static_cast<char*>(device) + at, buffer.memory, part, cudaMemcpyDefault, on));
      check(cudaEventRecord(buffer.copied, on));
    }
  }

 private:
  struct Buffer {
    void* memory = nullptr;
    size_t bytes = 0;
    cudaEvent_t copied = nullptr;
  };
  static constexpr size_t kMaxBuffers = 64;  // buffers of one size

  // Returns the buffer used longest ago, or a new one while the device is still reading that one and there are few.
  Buffer& next(size_t bytes) {
    std::deque<Buffer>& buffers = buffers_[std::bit_ceil(std::max<size_t>(bytes, 4096))];
    const bool waits = !buffers.empty() && cudaEventQuery(buffers.front().copied) == cudaErrorNotReady;
    if (waits) cudaGetLastError();  // clears the error, which libraries would take for theirs
    if (buffers.empty() || (waits && buffers.size() < kMaxBuffers)) {
      Buffer made;
      made.bytes = std::bit_ceil(std::max<size_t>(bytes, 4096));
      check(cudaMallocHost(&made.memory, made.bytes));
      made.copied = make_event();
      buffers.push_back(made);
    } else {
      check(cudaEventSynchronize(buffers.front().copied));
      buffers.push_back(buffers.front());
      buffers.pop_front();
    }
    return buffers.back();
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::deque<Buffer>> buffers_;  // by size
};

class GpuMemory : public DeviceBackend {
 public:
  explicit GpuMemory(const std::string& name) : name_(name) {
    check(cudaStreamCreateWithFlags(&streams().compute, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&streams().copy, cudaStreamNonBlocking));
    check(cudaStreamCreateWithFlags(&streams().fetch, cudaStreamNonBlocking));
  }

  std::string name() const override { return name_; }
  Allocator& allocator() override { return allocator_; }
  bool is_asynchronous() const override { return true; }
  Memory memory() const override {
    size_t free = 0;
    size_t total = 0;
    check(cudaMemGetInfo(&free, &total));
    return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
  }

  Allocator& upload_allocator() override { return uploads_; }
  Allocator& host_allocator() override { return pinned_memory_; }
  void upload_new(void* device, const void* host, size_t bytes) override {
    if (bytes <= kMaxStored) return store_bytes(device, host, bytes);
    pinned_.copy(device, host, bytes, streams().copy);
    check(cudaEventRecord(uploaded_, streams().copy));
    check(cudaStreamWaitEvent(streams().compute, uploaded_));
  }

  // Kernels that were queued before may still use the memory that the copies write.
  void fetch(const std::vector<Copy>& copies) override {
    check(cudaEventRecord(begun_, stream()));
    check(cudaStreamWaitEvent(streams().fetch, begun_));
    for (const Copy& copy : copies) {
      check(cudaMemcpyAsync(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, streams().fetch));
    }
    check(cudaEventRecord(fetched_, streams().fetch));
  }
  void await_fetched() override { check(cudaStreamWaitEvent(stream(), fetched_)); }

  void copy_to_host(void* host, const void* device, size_t bytes) override {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDefault, stream()));
    synchronize();
  }
  void copy_from_host(void* device, const void* host, size_t bytes) override {
    if (bytes <= kMaxStored) return store_bytes(device, host, bytes);
    pinned_.copy(device, host, bytes, stream());
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()));
  }
  void zero(void* device, size_t bytes) override { check(cudaMemsetAsync(device, 0, bytes, stream())); }
  void synchronize() override {
    check(cudaStreamSynchronize(stream()));
    if (check_connection_) check_connection_();
  }

  std::unique_ptr<Collectives> connect(Ranks& ranks) override {
    std::array<char, 32> bus{};
    ranks.on_all([&] { check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), 0)); });
    NcclConnection connection = connect_nccl(ranks, {.gpu = bus.data(), .compute = streams().compute});
    check_connection_ = std::move(connection.check);
    return std::move(connection.collectives);
  }

 private:
  std::string name_;
  GpuAllocator allocator_;
  UploadAllocator uploads_{allocator_};
  PinnedAllocator pinned_memory_;
  PinnedBuffers pinned_;
  std::function<void()> check_connection_;  // set by the last connect()
  cudaEvent_t uploaded_ = make_event(), begun_ = make_event(), fetched_ = make_event();
};

}  // namespace

cudaStream_t stream() {
  return streams().compute;
}

std::unique_ptr<DeviceBackend> make_memory(const std::string& name) {
  return std::make_unique<GpuMemory>(name);
}

}  // namespace quire::cuda
