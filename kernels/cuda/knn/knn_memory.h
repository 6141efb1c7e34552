// Functions with which kernels read an external memory: entries by their age, as numbers in any storage type. The host
// does not wait for head and length in order to check them: a length beyond the ring counts as its size.
#pragma once

#include <bit>

#include "core/float8.h"
#include "kernels/cuda/tiles.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

// Calls function(T{}, S{}) with the types of queries and of stored vectors.
template <typename Function>
void dispatch_stored(DType query, DType stored, Function&& function) {
  dispatch(query, [&](auto type) {
    using T = decltype(type);
    switch (stored) {
      case DType::f32:
        return function(type, float{});
      case DType::bf16:
        return function(type, bfloat16{});
      case DType::i8:
        return function(type, int8_t{});
      case DType::f8:
        return function(type, float8{});
      default:
        if constexpr (std::is_same_v<T, double>) return function(type, double{});
        throw DeviceError(std::string("no memory is stored as ") + name_of(stored));
    }
  });
}

template <typename A, typename S>
__device__ inline A from_stored(S value) {
  if constexpr (std::is_same_v<S, bfloat16> || std::is_same_v<S, float8>) {
    return static_cast<float>(value);
  } else {
    return static_cast<A>(value);
  }
}

// Eight stored numbers of 8 bits.
struct alignas(8) EightBytes {
  uint32_t x[2];
};
// Converts a number of 8 bits exactly.
template <typename S>
__device__ inline float from_byte(uint32_t byte) {
  if constexpr (std::is_same_v<S, int8_t>) {
    // The bits are those of 2^23 + 128 + x; subtracting 2^23 + 128 leaves x.
    return std::bit_cast<float>(0x4b000000U | (byte ^ 0x80U)) - 8388736.0F;
  } else {
    // Exponent and mantissa are shifted to those of f32, which gives 2^-120 times the number. All bits set is a NaN.
    const float size = std::bit_cast<float>((byte & 0x7fU) << 20) * 0x1p120F;
    const uint32_t bits = (byte & 0x7fU) == 0x7fU ? 0x7fc00000U : std::bit_cast<uint32_t>(size);
    return std::bit_cast<float>(bits | (byte & 0x80U) << 24);
  }
}

// The keys or values of a memory [R, C, Hk, width].
template <typename S>
struct StoredVectors {
  const S* data;
  const bfloat16* scale;  // for i8 and f8
  const int32_t *head, *length;
  int64_t slots, kv_heads, width;

  static StoredVectors of(const Tensor& stored, const Tensor& scales, const ops::KnnMemory& memory) {
    return {stored.data<S>(),
            data_or_null<bfloat16>(scales),
            memory.head.data<int32_t>(),
            memory.length.data<int32_t>(),
            stored.dim(1),
            stored.dim(2),
            stored.dim(3)};
  }

  __device__ int64_t length_of(int64_t row) const {
    const int64_t entries = length[row];
    return entries < 0 ? 0 : entries > slots ? slots : entries;
  }
  // Returns the vector number of an entry, which is below length_of(row).
  __device__ int64_t vector_of(int64_t row, int64_t kv_head, int64_t entry) const {
    int64_t slot = (head[row] - length_of(row) + entry) % slots;
    if (slot < 0) slot += slots;
    return (row * slots + slot) * kv_heads + kv_head;
  }
  __device__ const S* line(int64_t vector) const { return data + vector * width; }
  template <typename A>
  __device__ A factor(int64_t vector) const {
    if constexpr (std::is_same_v<S, int8_t> || std::is_same_v<S, float8>) return static_cast<float>(scale[vector]);
    return A{1};
  }
};

}  // namespace quire::cuda
