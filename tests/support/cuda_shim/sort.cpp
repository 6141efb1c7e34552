#include "kernels/cuda/sort.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "kernels/cuda/stream.h"

namespace quire::cuda {

void sort_pairs(const Tensor& sorted_keys, const Tensor& sorted_values, const Tensor& keys, const Tensor& values,
                int key_bits) {
  const auto sort = [to_keys = sorted_keys.data<int32_t>(), to_values = sorted_values.data<int32_t>(),
                     from_keys = keys.data<int32_t>(), from_values = values.data<int32_t>(), count = keys.numel(),
                     key_bits = int64_t{key_bits}] {
    const shim::DeviceMemoryOpen open;
    const std::vector<int32_t> key(from_keys, from_keys + count);
    const std::vector<int32_t> value(from_values, from_values + count);
    std::vector<size_t> order(key.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key[a] < key[b]; });
    for (size_t i = 0; i < order.size(); ++i) {
      // A GPU looks at no further bits.
      if (key[order[i]] < 0 || key[order[i]] >> key_bits != 0) std::abort();
      to_keys[i] = key[order[i]];
      to_values[i] = value[order[i]];
    }
  };
  shim::on_stream(stream(), sort);
}

}  // namespace quire::cuda
