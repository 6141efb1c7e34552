#include "kernels/cuda/sort.h"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

struct Sort {
  int32_t* to_keys;
  int32_t* to_values;
  const int32_t* keys;
  const int32_t* values;
  int64_t count;
  int64_t key_bits;
  void* scratch = nullptr;
};

// Sorts; without scratch it only returns the bytes of scratch that it needs.
void run(const Sort& sort, size_t& bytes, cudaStream_t on) {
  check(cub::DeviceRadixSort::SortPairs(sort.scratch, bytes, sort.keys, sort.to_keys, sort.values, sort.to_values,
                                        sort.count, 0, static_cast<int>(sort.key_bits), on));
}

}  // namespace

void sort_pairs(const Tensor& sorted_keys, const Tensor& sorted_values, const Tensor& keys, const Tensor& values,
                int key_bits) {
  Sort sort{.to_keys = sorted_keys.data<int32_t>(),
            .to_values = sorted_values.data<int32_t>(),
            .keys = keys.data<int32_t>(),
            .values = values.data<int32_t>(),
            .count = keys.numel(),
            .key_bits = key_bits};
  size_t bytes = 0;
  run(sort, bytes, nullptr);
  // The scratch is never empty, because a call without it would only ask for its size.
  const Tensor scratch = Tensor::empty({static_cast<int64_t>(bytes) + 1}, DType::u8, keys.device());
  sort.scratch = scratch.raw();
  run(sort, bytes, stream());
}

}  // namespace quire::cuda
