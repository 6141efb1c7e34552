// Stands in for CUDA's header of this name when kernels are compiled as C++: a grid runs block after block, the threads
// of a block as fibers that take turns at barriers and warp operations. Kernels see the same words; sanitizers see
// ordinary code. What a kernel must keep here is stricter than on a GPU: barriers and warp operations are reached by
// all threads of the block or warp, from the same line, with the full mask, and no thread has returned before.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/cuda_shim/cuda_streams.h"
#include "tests/support/cuda_shim/device_memory.h"
#include "tests/support/cuda_shim/products.h"

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's own words
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// A static is enough, because one block runs at a time, on one thread of the host.
#define __shared__ static

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;
inline constexpr int warpSize = 32;

namespace quire::shim {

// Does work of a stream. Two sources define it: cuda_device.cpp does it at once, asynchronous_device.cpp when the
// stream reaches it.
void on_stream(cudaStream_t stream, std::function<void()> work);
struct Parameter {
  const void* at;
  size_t bytes;
};
// Runs `body`, a call of a kernel, once for every thread of the grid. Aborts with one line on stderr when threads wait
// at different barriers.
void run_grid(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& body,
              const std::vector<Parameter>& parameters);
// Replaces the function that runs grids from now on; it gets kernels by the names of their symbols.
using GridRunner = void (*)(const std::string& symbol, dim3 grid, dim3 block, size_t shared_bytes,
                            const std::vector<Parameter>& parameters);
void set_grid_runner(GridRunner runner);
void block_barrier(const char* file, int line);
void* dynamic_shared();
// Sets the shared memory that a block may have; the default is 227 KB, as on Hopper.
void set_shared_memory(size_t bytes);
// Returns the largest dynamic shared memory that a block of any grid has requested since the last call.
size_t max_shared_bytes();
// All lanes give a value of at most kLaneBytes and get those of all: lane l's at kLaneBytes l. Valid until the next
// exchange.
inline constexpr size_t kLaneBytes = 24;
const unsigned char* exchange(const void* value, size_t bytes, unsigned mask, const char* file, int line);
int lane();

template <typename T>
T from_lane(const unsigned char* values, int lane) {
  T value;
  std::memcpy(&value, values + kLaneBytes * static_cast<size_t>(lane), sizeof(T));
  return value;
}
template <typename T>
T shuffle(T value, int source, unsigned mask, const char* file, int line) {
  static_assert(sizeof(T) <= kLaneBytes);
  return from_lane<T>(exchange(&value, sizeof(T), mask, file, line), source < 0 || source > 31 ? lane() : source);
}
inline unsigned ballot(bool vote, unsigned mask, const char* file, int line) {
  const unsigned char mine = vote ? 1 : 0;
  const unsigned char* all = exchange(&mine, 1, mask, file, line);
  unsigned bits = 0;
  for (int l = 0; l < 32; ++l) bits |= static_cast<unsigned>(all[kLaneBytes * static_cast<size_t>(l)]) << l;
  return bits;
}

// Tensor cores (mma.cpp): the instructions that kernels/cuda/mma.h names, as the PTX ISA describes them.
void multiply_add(float (&sums)[4], const uint32_t (&left)[4], const uint32_t (&right)[2], const char* file, int line);
void load_matrices(uint32_t (&to)[4], const void* address, bool transposed, const char* file, int line);
// Returns the number of matrices so far whose eight lines do not lie in 32 different banks.
int64_t bank_conflicts();
// Returns the number of products of fragments so far that whole warps have made.
int64_t tensor_products();
// Copies of half of the threads are made at once and those of the others as late as allowed, so that a missing wait or
// barrier is noticed in either case.
void copy_later(void* shared, const void* from, size_t bytes);
void await_copies();

}  // namespace quire::shim

#define __syncthreads() ::quire::shim::block_barrier(__FILE__, __LINE__)
#define __syncwarp(...) static_cast<void>(::quire::shim::ballot(true, ~0U, __FILE__, __LINE__))
#define __shfl_sync(mask, value, source) ::quire::shim::shuffle(value, source, mask, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, bits) \
  ::quire::shim::shuffle(value, ::quire::shim::lane() ^ (bits), mask, __FILE__, __LINE__)
#define __shfl_up_sync(mask, value, n) \
  ::quire::shim::shuffle(value, ::quire::shim::lane() - static_cast<int>(n), mask, __FILE__, __LINE__)
#define __shfl_down_sync(mask, value, n) \
  ::quire::shim::shuffle(value, ::quire::shim::lane() + static_cast<int>(n), mask, __FILE__, __LINE__)
#define __ballot_sync(mask, vote) ::quire::shim::ballot(vote, mask, __FILE__, __LINE__)
#define __any_sync(mask, vote) (::quire::shim::ballot(vote, mask, __FILE__, __LINE__) != 0)
#define __all_sync(mask, vote) (::quire::shim::ballot(vote, mask, __FILE__, __LINE__) == ~0U)

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __clz(int x) {
  return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}
// Atomics have no memory order: kernels must order other accesses by barriers.
template <typename T>
T atomicAdd(T* to, T value) {
  static_assert(!std::is_floating_point_v<T>, "sums of floating-point atomics depend on the order of threads");
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicMax(T* to, T value) {
  T before = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (value > before && !__atomic_compare_exchange_n(to, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}
inline float rsqrtf(float x) {
  return 1.0F / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}

// The calls of the runtime library that launchers make.
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin = 97 };
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
inline constexpr unsigned cudaHostAllocPortable = 1;
inline constexpr unsigned cudaHostAllocMapped = 2;
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};
const char* cudaGetErrorString(cudaError_t error);
cudaError_t check_launch(const void* kernel, const cudaLaunchConfig_t& config);
cudaError_t allow_shared_memory(const void* kernel, size_t bytes);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... given) {
  const cudaError_t error = check_launch(reinterpret_cast<const void*>(kernel), *config);
  if (error != cudaSuccess) return error;
  // Values, as a GPU gets them.
  using Values = std::tuple<std::remove_cvref_t<Parameters>...>;
  quire::shim::on_stream(config->stream,
                         [kernel, config = *config, values = Values(static_cast<Parameters>(given)...)] {
                           quire::shim::run_grid(
                               reinterpret_cast<const void*>(kernel), config.gridDim, config.blockDim,
                               config.dynamicSmemBytes, [&] { std::apply(kernel, values); },
                               std::apply(
                                   [](const auto&... of) {
                                     return std::vector<quire::shim::Parameter>{{&of, sizeof of}...};  // NOLINT
                                   },
                                   values));
                         });
  return cudaSuccess;
}
inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  return allow_shared_memory(kernel, static_cast<size_t>(value));
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  quire::shim::on_stream(stream, [=] {
    const quire::shim::DeviceMemoryOpen open;
    std::memset(to, value, bytes);
  });
  return cudaSuccess;
}
// A direction that is not that of the addresses is undefined; they tell it themselves.
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDefault) return cudaErrorInvalidValue;
  quire::shim::on_stream(stream, [=] {
    const quire::shim::DeviceMemoryOpen open;
    std::memcpy(to, from, bytes);
  });
  return cudaSuccess;
}
// Defined only in asynchronous_device.cpp.
cudaError_t cudaMalloc(void** block, size_t bytes);
cudaError_t cudaFree(void* block);
cudaError_t cudaHostAlloc(void** block, size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void** block, size_t bytes);
cudaError_t cudaFreeHost(void* block);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceGetPCIBusId(char* name, int length, int device);
// NOLINTEND(bugprone-reserved-identifier)
