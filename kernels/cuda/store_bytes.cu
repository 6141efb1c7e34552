#include "kernels/cuda/store_bytes.h"

#include <cstring>

#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

struct Values {
  uint32_t words[kMostStored / sizeof(uint32_t)];
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

// from: nullptr for zeros. Packs of 16 bytes where both sides are aligned, and single bytes for the rest.
__global__ void copy_bytes_kernel(unsigned char* to, const unsigned char* from, int64_t bytes, bool aligned) {
  constexpr int kPack = 16;
  const int64_t packs = aligned ? bytes / kPack : 0;
  for (int64_t i = first_element(); i < packs; i += element_stride()) {
    Pack<unsigned char, kPack> pack{};
    if (from != nullptr) pack = load<kPack>(from + i * kPack, true);
    store<kPack>(to + i * kPack, pack, true);
  }
  for (int64_t i = packs * kPack + first_element(); i < bytes; i += element_stride()) {
    to[i] = from == nullptr ? static_cast<unsigned char>(0) : from[i];
  }
}

void copy_or_clear(void* to, const void* from, size_t bytes) {
  const bool aligned = are_aligned({to}) && (from == nullptr || are_aligned({from}));
  const auto count = static_cast<int64_t>(bytes);
  launch(copy_bytes_kernel, blocks_for(ceil_div(count, aligned ? 16 : 1)), kBlock, 0, static_cast<unsigned char*>(to),
         static_cast<const unsigned char*>(from), count, aligned);
}

}  // namespace

void store_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > kMostStored) throw DeviceError("a kernel stores 1024 bytes at most, not " + std::to_string(bytes));
  if (bytes == 0) return;
  Values values{};
  std::memcpy(values.words, from, bytes);
  const bool in_words = bytes % sizeof(uint32_t) == 0 && reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0;
  launch(store_bytes_kernel, dim3(1), kWarp, 0, static_cast<unsigned char*>(to), values, static_cast<int>(bytes),
         in_words);
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  copy_or_clear(to, from, bytes);
}

void clear_bytes(void* to, size_t bytes) {
  copy_or_clear(to, nullptr, bytes);
}

}  // namespace quire::cuda
