// The threads of a block as fibers.
#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/support/cuda_shim/cuda_runtime.h"
#include "tests/support/cuda_shim/device_memory.h"
#include "tests/support/cuda_shim/static_shared.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// void quire_shim_switch(void** saved, void* next): callee-saved registers go onto the stack that is left, whose end
// goes to *saved; those of the other stack come back.
asm(R"(
.text
.type quire_shim_switch, @function
quire_shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quire_shim_switch, .-quire_shim_switch
)");
extern "C" void quire_shim_switch(void** saved, void* next);

namespace quire::shim {

namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
std::atomic<size_t> g_shared_limit = size_t{227} << 10;
std::atomic<size_t> g_max_shared = 0;
GridRunner g_runner = nullptr;

enum class Waits { no, for_block, for_warp, done };

struct Copy {
  void* to;
  const void* from;  // null: zeros
};
constexpr size_t kCopyBytes = 16;

struct Fiber {
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* top = nullptr;  // saved stack pointer
  uint3 index{};
  Waits waits = Waits::done;
  const char* file = "";
  int line = 0;
  int64_t warp_operations = 0;  // arrived at so far in this block
  int64_t barriers = 0;
  std::vector<Copy> copies;    // that it has not waited for
  void* fake_stack = nullptr;  // AddressSanitizer
  void* tsan = nullptr;
};

struct Scheduler {
  std::vector<std::unique_ptr<Fiber>> fibers;
  Fiber host;
  Fiber* current = nullptr;
  int threads = 0;
  const std::function<void()>* body = nullptr;
  std::vector<unsigned char> shared;
  const std::vector<SharedArray>* static_shared = nullptr;
  std::vector<unsigned char> lanes;  // [warp, 2, 32 lanes, kLaneBytes]
  std::vector<int64_t> complete;     // [warp]: the last operation that all lanes have arrived at
  // The addresses that order threads for ThreadSanitizer: the beginning and the end of a block, and its barriers in
  // turn. With a single one, a thread would be ordered after another that is already further on, which would hide a
  // race between them.
  char begin_sync = 0;
  char end_sync = 0;
  char barrier_sync[2] = {};
};

Scheduler& scheduler() {
  static Scheduler* const one = new Scheduler;  // a stream's thread may outlive statics
  return *one;
}

[[noreturn]] void give_up(const char* what, const Fiber& fiber) {
  std::fprintf(stderr, "cuda_shim: %s: thread %u,%u,%u at %s:%d\n", what, fiber.index.x, fiber.index.y, fiber.index.z,
               fiber.file, fiber.line);
  std::abort();
}

void switch_to([[maybe_unused]] Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  quire_shim_switch(&from.top, to.top);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void acquire([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(what);
#endif
}
void release([[maybe_unused]] void* what) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(what);
#endif
}

void to_host() {
  Scheduler& s = scheduler();
  switch_to(*s.current, s.host);
}

[[noreturn]] void fiber_main() {
  Scheduler& s = scheduler();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  for (;;) {
    acquire(&s.begin_sync);
    (*s.body)();
    if (!s.current->copies.empty()) give_up("a thread returns before its copies have ended", *s.current);
    release(&s.end_sync);
    s.current->waits = Waits::done;
    to_host();
  }
}

std::unique_ptr<Fiber> make_fiber() {
  auto fiber = std::make_unique<Fiber>();
  // A page below that nobody may touch ends a fiber that needs more.
  constexpr size_t kGuard = 4096;
  void* const memory =
      ::mmap(nullptr, kStackBytes + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuard, PROT_NONE) != 0) std::abort();
  char* const bottom = static_cast<char*>(memory) + kGuard;
  fiber->stack = bottom;
  fiber->stack_bytes = kStackBytes;
  // Six registers and the address to begin at; a call leaves the stack 8 bytes off a multiple of 16.
  void** top = reinterpret_cast<void**>(bottom + kStackBytes) - 3;
  *--top = reinterpret_cast<void*>(&fiber_main);
  top -= 6;
  fiber->top = top;
#if defined(__SANITIZE_THREAD__)
  fiber->tsan = __tsan_create_fiber(0);
#endif
  return fiber;
}

// Records what is needed to switch back to the host's stack.
void know_host(Fiber& host) {
#if defined(__SANITIZE_ADDRESS__)
  // Any thread may be the host.
  thread_local const std::pair<void*, size_t> stack = [] {
    pthread_attr_t attributes;
    void* bottom = nullptr;
    size_t bytes = 0;
    if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) std::abort();
    ::pthread_attr_getstack(&attributes, &bottom, &bytes);
    ::pthread_attr_destroy(&attributes);
    return std::pair{bottom, bytes};
  }();
  host.stack = stack.first;
  host.stack_bytes = stack.second;
#endif
#if defined(__SANITIZE_THREAD__)
  host.tsan = __tsan_get_current_fiber();
#endif
  static_cast<void>(host);
}

void make_copies() {
  for (const Copy& copy : std::exchange(scheduler().current->copies, {})) {
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, kCopyBytes);
    } else {
      std::memcpy(copy.to, copy.from, kCopyBytes);
    }
  }
}

bool stands_elsewhere(const Fiber& fiber, const Fiber& other) {
  return other.line != fiber.line || (other.file != fiber.file && std::strcmp(other.file, fiber.file) != 0);
}

bool warp_is_complete(const Scheduler& s, int thread) {
  const int first = thread / 32 * 32;
  const Fiber& fiber = *s.fibers[static_cast<size_t>(thread)];
  for (int lane = first; lane < first + 32; ++lane) {
    const Fiber& other = *s.fibers[static_cast<size_t>(lane)];
    if (other.warp_operations < fiber.warp_operations) {
      if (other.waits == Waits::done) give_up("a thread has returned before a warp operation that others reach", fiber);
      return false;
    }
    if (other.warp_operations == fiber.warp_operations && other.waits == Waits::for_warp &&
        stands_elsewhere(fiber, other)) {
      give_up("lanes of a warp are at different warp operations", fiber);
    }
  }
  return true;
}

// Returns true when every thread has arrived at the barrier.
bool release_barrier(Scheduler& s) {
  const Fiber* waiting = nullptr;
  int at_barrier = 0;
  for (int t = 0; t < s.threads; ++t) {
    const Fiber& fiber = *s.fibers[static_cast<size_t>(t)];
    if (fiber.waits != Waits::for_block) continue;
    ++at_barrier;
    if (waiting != nullptr && stands_elsewhere(fiber, *waiting)) {
      give_up("divergent barrier: threads wait at different lines", fiber);
    }
    waiting = &fiber;
  }
  if (waiting == nullptr) return false;
  if (at_barrier < s.threads) {
    for (int t = 0; t < s.threads; ++t) {
      if (s.fibers[static_cast<size_t>(t)]->waits == Waits::done) {
        give_up("divergent barrier: a thread has returned before", *waiting);
      }
    }
    return false;
  }
  for (int t = 0; t < s.threads; ++t) s.fibers[static_cast<size_t>(t)]->waits = Waits::no;
  return true;
}

void run_block(Scheduler& s) {
  for (int t = 0; t < s.threads; ++t) {
    Fiber& fiber = *s.fibers[static_cast<size_t>(t)];
    fiber.waits = Waits::no;
    fiber.warp_operations = 0;
    fiber.barriers = 0;
  }
  s.complete.assign(static_cast<size_t>((s.threads + 31) / 32), 0);
  // Not a number everywhere: what is read before it is written shows.
  std::fill(s.shared.begin(), s.shared.end(), static_cast<unsigned char>(0xff));
  for (const SharedArray& array : *s.static_shared) std::memset(array.begin, 0xff, array.bytes);
  release(&s.begin_sync);
  for (;;) {
    bool moved = false;
    int done = 0;
    for (int t = 0; t < s.threads; ++t) {
      Fiber& fiber = *s.fibers[static_cast<size_t>(t)];
      if (fiber.waits == Waits::done) {
        ++done;
        continue;
      }
      if (fiber.waits == Waits::for_block) continue;
      int64_t& complete = s.complete[static_cast<size_t>(t / 32)];
      if (fiber.waits == Waits::for_warp && fiber.warp_operations > complete) {
        if (!warp_is_complete(s, t)) continue;
        complete = fiber.warp_operations;
      }
      fiber.waits = Waits::no;
      moved = true;
      s.current = &fiber;
      threadIdx = fiber.index;
      switch_to(s.host, fiber);
    }
    if (done == s.threads) break;
    if (release_barrier(s)) continue;
    if (!moved) {
      for (int t = 0; t < s.threads; ++t) {
        const Fiber& fiber = *s.fibers[static_cast<size_t>(t)];
        if (fiber.waits != Waits::done) give_up("divergent barrier: threads wait for each other", fiber);
      }
    }
  }
  acquire(&s.end_sync);
}

}  // namespace

void run_grid(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body,
              const std::vector<Parameter>& parameters) {
  static std::mutex one_grid;  // for all threads that launch
  const std::lock_guard lock(one_grid);
  const DeviceMemoryOpen open;
  if (g_runner != nullptr) return g_runner(symbol_of(kernel), grid, block, shared_bytes, parameters);
  Scheduler& s = scheduler();
  s.static_shared = &static_shared_of(kernel);
  s.threads = static_cast<int>(block.x * block.y * block.z);
  while (static_cast<int>(s.fibers.size()) < s.threads) s.fibers.push_back(make_fiber());
  know_host(s.host);
  s.body = &body;
  // Exactly as much as was asked for: an overrun leaves the buffer.
  std::vector<unsigned char>(shared_bytes).swap(s.shared);
  s.lanes.assign(static_cast<size_t>((s.threads + 31) / 32) * 2 * 32 * kLaneBytes, 0);
  blockDim = block;
  gridDim = grid;
  for (int t = 0; t < s.threads; ++t) {
    const auto u = static_cast<unsigned>(t);
    s.fibers[static_cast<size_t>(t)]->index = {u % block.x, u / block.x % block.y, u / (block.x * block.y)};
  }
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block(s);
      }
    }
  }
}

void set_grid_runner(GridRunner runner) {
  g_runner = runner;
}

void copy_later(void* shared, const void* from, size_t bytes) {
  Fiber& fiber = *scheduler().current;
  if (reinterpret_cast<uintptr_t>(shared) % kCopyBytes != 0 ||
      (bytes != 0 && reinterpret_cast<uintptr_t>(from) % kCopyBytes != 0)) {
    give_up("a copy from or to an address that is no multiple of 16", fiber);
  }
  fiber.copies.push_back({shared, bytes == 0 ? nullptr : from});
  if (fiber.index.x % 2 == 1) make_copies();
}

void await_copies() {
  make_copies();
}

void set_shared_memory(size_t bytes) {
  g_shared_limit = bytes;
}

void* dynamic_shared() {
  return scheduler().shared.data();
}

void block_barrier(const char* file, int line) {
  Scheduler& s = scheduler();
  Fiber& fiber = *s.current;
  fiber.waits = Waits::for_block;
  fiber.file = file;
  fiber.line = line;
  char* const sync = &s.barrier_sync[fiber.barriers++ % 2];
  release(sync);
  to_host();
  acquire(sync);
}

int lane() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}

const unsigned char* exchange(const void* value, size_t bytes, unsigned mask, const char* file, int line) {
  Scheduler& s = scheduler();
  Fiber& fiber = *s.current;
  fiber.file = file;
  fiber.line = line;
  if (mask != ~0U) give_up("a warp operation without the full mask", fiber);
  const size_t warp = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * static_cast<size_t>(threadIdx.z))) / 32;
  // Two buffers: a lane that goes on writes the next operation's values while others still read these.
  unsigned char* const values =
      s.lanes.data() + (warp * 2 + static_cast<size_t>(fiber.warp_operations % 2)) * 32 * kLaneBytes;
  std::memcpy(values + kLaneBytes * static_cast<size_t>(lane()), value, bytes);
  ++fiber.warp_operations;
  fiber.waits = Waits::for_warp;
  release(values);
  to_host();
  acquire(values);
  return values;
}

size_t max_shared_bytes() {
  return g_max_shared.exchange(0);
}

}  // namespace quire::shim

namespace {

// The dynamic shared memory that kernels have requested.
std::mutex g_allowed_mutex;
std::unordered_map<const void*, size_t> g_allowed;

size_t static_bytes_of(const void* kernel) {
  size_t bytes = 0;
  for (const quire::shim::SharedArray& array : quire::shim::static_shared_of(kernel)) bytes += array.bytes;
  return bytes;
}

}  // namespace

// Follows the documentation of cudaFuncAttributeMaxDynamicSharedMemorySize: the kernel's own arrays count, too.
cudaError_t allow_shared_memory(const void* kernel, size_t bytes) {
  if (bytes + static_bytes_of(kernel) > quire::shim::g_shared_limit) return cudaErrorInvalidValue;
  const std::lock_guard lock(g_allowed_mutex);
  g_allowed[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& config) {
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  if (config.dynamicSmemBytes + static_bytes_of(kernel) > kWithoutAsking) {
    const std::lock_guard lock(g_allowed_mutex);
    if (g_allowed[kernel] < config.dynamicSmemBytes) return cudaErrorInvalidValue;
  }
  if (config.dynamicSmemBytes > quire::shim::g_max_shared) quire::shim::g_max_shared = config.dynamicSmemBytes;
  const uint64_t threads = uint64_t{config.blockDim.x} * config.blockDim.y * config.blockDim.z;
  const bool fits = config.gridDim.x > 0 && config.gridDim.y > 0 && config.gridDim.z > 0 &&
                    config.gridDim.x <= 0x7fffffffU && config.gridDim.y <= 65535 && config.gridDim.z <= 65535 &&
                    threads > 0 && threads <= 1024 && threads % 32 == 0 &&
                    config.dynamicSmemBytes <= quire::shim::g_shared_limit;
  return fits ? cudaSuccess : cudaErrorInvalidConfiguration;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(quire::shim::g_shared_limit);
      break;
  }
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorInvalidValue) return "invalid argument";
  return error == cudaSuccess ? "no error" : "invalid configuration argument";
}
