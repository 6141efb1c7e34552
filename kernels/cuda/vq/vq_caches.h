// Code that the kernels of codeword caches share.
#pragma once

#include "kernels/cuda/tiles.h"

namespace quire::cuda {

// Says whether cache b begins anew.
__device__ inline bool begins_anew(const int32_t* origin, int64_t b) {
  return b == 0 || origin[b] != origin[b - 1];
}

}  // namespace quire::cuda
