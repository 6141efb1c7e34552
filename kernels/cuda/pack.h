// Packs of values that are loaded and stored 16 bytes at a time where their addresses allow it. The number of values of
// a thread depends on the width of a row; only the instruction depends on the address, so that the order of a sum does
// not.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

inline constexpr size_t kVectorBytes = 16;

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < kVectorBytes ? sizeof(T) * kCount : kVectorBytes) Pack {
  T value[kCount];
};

// The number of values in one load or store of 16 bytes.
template <typename T>
inline constexpr int kPackOf = static_cast<int>(kVectorBytes / sizeof(T));

inline bool are_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers) {
    if (reinterpret_cast<uintptr_t>(pointer) % kVectorBytes != 0) return false;
  }
  return true;
}

template <int kCount, typename T>
__device__ inline Pack<T, kCount> load(const T* from, bool aligned) {
  if (kCount > 1 && aligned) return *reinterpret_cast<const Pack<T, kCount>*>(from);
  Pack<T, kCount> pack;
#pragma unroll
  for (int k = 0; k < kCount; ++k) pack.value[k] = from[k];
  return pack;
}

template <int kCount, typename T>
__device__ inline void store(T* to, const Pack<T, kCount>& pack, bool aligned) {
  if (kCount > 1 && aligned) {
    *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) to[k] = pack.value[k];
}

// Calls function(integral_constant) with the number of values of type T that a thread takes from rows of `width`.
template <typename T, typename Function>
void with_pack(int64_t width, Function&& function) {
  if (width % kPackOf<T> == 0) {
    function(std::integral_constant<int, kPackOf<T>>{});
  } else {
    function(std::integral_constant<int, 1>{});
  }
}

}  // namespace quire::cuda
