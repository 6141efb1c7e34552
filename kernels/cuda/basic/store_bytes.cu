#include "kernels/cuda/basic/store_bytes.h"

#include <cstring>

#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

struct Values {
  uint32_t words[kMaxStored / sizeof(uint32_t)];
};

// A warp stores whole words where it can, and bytes otherwise.
__global__ void store_bytes_kernel(unsigned char* to, Values values, int bytes, bool in_words) {
  if (in_words) {
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 4; i += kWarp) {
      reinterpret_cast<uint32_t*>(to)[i] = values.words[i];
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < bytes; i += kWarp) {
      to[i] = static_cast<unsigned char>(values.words[i / 4] >> 8 * (i % 4));
    }
  }
}

}  // namespace

void store_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > kMaxStored) throw DeviceError("a kernel stores 1024 bytes at most, not " + std::to_string(bytes));
  if (bytes == 0) return;
  Values values{};
  std::memcpy(values.words, from, bytes);
  const bool in_words = bytes % sizeof(uint32_t) == 0 && reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0;
  launch(store_bytes_kernel, dim3(1), kWarp, 0, static_cast<unsigned char*>(to), values, static_cast<int>(bytes),
         in_words);
}

}  // namespace quire::cuda
