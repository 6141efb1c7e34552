// Functions that every CUDA kernel file needs: launches on the backend's stream, element types, sums over a block. The
// same sources compile as C++ in tests (tests/support/cuda_shim), so kernels use plain CUDA C++: all threads reach
// barriers and warp operations, with the full mask.
#pragma once

#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "core/bfloat16.h"
#include "core/tensor.h"
#include "kernels/cuda/stream.h"

namespace quire::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = ~0U;
inline constexpr int kBlock = 256;  // threads, unless a kernel needs another number

template <typename Integer>
constexpr __host__ __device__ Integer ceil_div(Integer a, std::type_identity_t<Integer> b) {
  return (a + b - 1) / b;
}

// Says whether a block may have so much shared memory: 227 KB on Hopper, 163 on an A100, 99 on the other GPUs of
// compute capability 8.0 and newer.
inline bool has_shared_memory(size_t bytes) {
  constexpr size_t kEverywhere = size_t{99} << 10;
  if (bytes <= kEverywhere) return true;
  int device = 0;
  int max_bytes = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&max_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes <= static_cast<size_t>(max_bytes);
}

// Allows a kernel so much dynamic shared memory. The runtime is called only when it needs more than before.
inline void allow_shared_memory(const void* kernel, size_t bytes) {
  static thread_local std::unordered_map<const void*, size_t> allowed;
  size_t& max_bytes = allowed[kernel];
  if (bytes <= max_bytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  max_bytes = bytes;
}

// Launches a kernel. A block has whole warps. A grid without blocks is not launched. Throws DeviceError when the GPU
// has less shared memory.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 blocks, int threads, size_t shared_bytes, Arguments&&... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  // Without asking, a kernel has 48 KB for this and its own arrays together.
  constexpr size_t kWithoutAsking = size_t{32} << 10;
  if (shared_bytes > kWithoutAsking) {
    if (!has_shared_memory(shared_bytes)) {
      throw DeviceError("a kernel needs " + std::to_string(shared_bytes >> 10) +
                        " KB of shared memory a block, more than this GPU has");
    }
    allow_shared_memory(reinterpret_cast<const void*>(kernel), shared_bytes);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream();
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

// Returns the blocks for `count` elements in a loop with stride: enough to fill the device, and sums are in an order
// that `count` alone sets.
inline dim3 blocks_for(int64_t count, int threads = kBlock) {
  constexpr int64_t kMaxBlocks = 4096;
  const int64_t blocks = ceil_div(count, threads);
  return dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks));
}
__device__ inline int64_t first_element() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t element_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// Values are stored as T and computed as Wide<T>. Vectors of parameters and statistics beside T are stored as Wide<T>,
// too (wide_type in core/dtype.h).
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
__device__ inline Wide<T> wide(T value) {
  return static_cast<Wide<T>>(value);
}
template <typename T>
__device__ inline T narrow(std::type_identity_t<Wide<T>> value) {
  return static_cast<T>(value);
}

// Calls function(T{}) with T = float, double or bfloat16.
template <typename Function>
void dispatch(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::f32:
      return function(float{});
    case DType::f64:
      return function(double{});
    case DType::bf16:
      return function(bfloat16{});
    default:
      throw DeviceError(std::string("there is no CUDA kernel for ") + name_of(dtype));
  }
}

// Calls function(T{}) without bf16, for data that stays f32 beside it: masters of parameters, moments, tables.
template <typename Function>
void dispatch_wide(DType dtype, Function&& function) {
  if (dtype == DType::bf16) throw DeviceError("it is f32 or f64, beside bf16 too");
  dispatch(wide_type(dtype), [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), bfloat16>) function(type);
  });
}

template <typename T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char memory[];
  return reinterpret_cast<T*>(memory);
#else
  return static_cast<T*>(shim::dynamic_shared());
#endif
}

__device__ inline int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

template <typename T>
__device__ inline T warp_sum(T value) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
template <typename T>
__device__ inline T warp_max(T value) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, value, bits);
    // NaN wins, so that it reaches the loss.
    value = other > value || other != other ? other : value;
  }
  return value;
}

// Returns the sum over the block to every thread, in a fixed order. `partial` is shared memory with one value per warp,
// which is free again after the next barrier.
template <typename T>
__device__ inline T block_sum(T value, T* partial) {
  const T sum = warp_sum(value);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = sum;
  __syncthreads();
  T total = 0;
  for (int w = 0; w < warps; ++w) total += partial[w];
  __syncthreads();
  return total;
}

template <typename T>
T* writable_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}
template <typename T>
const T* data_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

}  // namespace quire::cuda
