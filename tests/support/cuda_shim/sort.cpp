#include "kernels/cuda/sort.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/support/cuda_shim/device_memory.h"

namespace quire::cuda {

void sort_pairs(const Tensor& sorted_keys, const Tensor& sorted_values, const Tensor& keys, const Tensor& values,
                int key_bits) {
  const shim::DeviceMemoryOpen open;
  const std::vector<int32_t> key(keys.data<int32_t>(), keys.data<int32_t>() + keys.numel());
  const std::vector<int32_t> value(values.data<int32_t>(), values.data<int32_t>() + values.numel());
  std::vector<size_t> order(key.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] < key[b]; });
  for (size_t i = 0; i < order.size(); ++i) {
    // A GPU looks at no further bits.
    if (key[order[i]] < 0 || key[order[i]] >> key_bits != 0) std::abort();
    sorted_keys.data<int32_t>()[i] = key[order[i]];
    sorted_values.data<int32_t>()[i] = value[order[i]];
  }
}

}  // namespace quire::cuda
