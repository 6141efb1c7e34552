// Searches in sorted lists.
#pragma once

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

// Returns the first of sorted numbers [low, high) that is not below `value`.
__device__ inline int64_t lower_bound(const int32_t* numbers, int64_t low, int64_t high, int64_t value) {
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (numbers[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace quire::cuda
