#include "kernels/cuda/sort.h"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

void sort_pairs(const Tensor& sorted_keys, const Tensor& sorted_values, const Tensor& keys, const Tensor& values,
                int key_bits) {
  const auto sort = [&](void* scratch, size_t& bytes) {
    check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys.data<int32_t>(), sorted_keys.data<int32_t>(),
                                          values.data<int32_t>(), sorted_values.data<int32_t>(), keys.numel(), 0,
                                          key_bits, stream()));
  };
  size_t bytes = 0;
  sort(nullptr, bytes);
  // Never empty: no scratch would mean another query.
  const Tensor scratch = Tensor::empty({static_cast<int64_t>(bytes) + 1}, DType::u8, keys.device());
  sort(scratch.raw(), bytes);
}

}  // namespace quire::cuda
