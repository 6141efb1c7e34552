// Teams: the threads that share a row in the kernels of norms.
#pragma once

#include "kernels/cuda/pack.h"

namespace quire::cuda {

// A row belongs to a warp, or to the whole block when it is wide.
inline constexpr int64_t kWidestOfWarp = 1024;

template <bool kWhole>
struct Team {
  int lane = static_cast<int>(threadIdx.x) % (kWhole ? kBlock : kWarp);
  int lanes = kWhole ? static_cast<int>(blockDim.x) : kWarp;
  int index = kWhole ? 0 : static_cast<int>(threadIdx.x) / kWarp;  // in the block
  int count = kWhole ? 1 : static_cast<int>(blockDim.x) / kWarp;   // of the block

  template <typename T>
  __device__ T sum(T value, T* partial) const {
    if constexpr (kWhole) {
      return block_sum(value, partial);
    } else {
      return warp_sum(value);
    }
  }
};

// Calls function(pack, whole) with the constants that fit rows of `width`.
template <typename T, typename Function>
void with_team(int64_t width, Function&& function) {
  with_pack<T>(width, [&](auto pack) {
    if (width > kWidestOfWarp) {
      function(pack, std::true_type{});
    } else {
      function(pack, std::false_type{});
    }
  });
}

// Returns the number of blocks of kBlock threads when each row has a team.
inline dim3 blocks_for_rows(int64_t rows, bool whole) {
  return dim3(static_cast<unsigned>(whole ? rows : ceil_div(rows, kBlock / kWarp)));
}

}  // namespace quire::cuda
