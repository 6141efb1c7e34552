// Code that the kernels that find nearest codewords share.
#pragma once

#include "kernels/cuda/tiles.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

template <typename T>
struct NearestOperands {
  const T* x;
  const Wide<T>* codebook;
  const Wide<T>* norms;
  int64_t vectors;
  int kv_heads, codes, size;
  bool quads;  // both may be read a quad at a time
};

// Says whether a codeword is nearer than the best one, or equally near with a smaller number. A thread without a finite
// value has code 0, which does not count.
template <typename A>
__device__ inline bool is_nearer(A value, int code, A nearest, int best) {
  return value < nearest || (value == nearest && code < best && value < std::numeric_limits<A>::infinity());
}

// Stores codes, codewords and squared distances of 64 vectors whose codes are `found`. A warp takes a vector at a time.
template <typename T>
__device__ inline void store_nearest(int32_t* codes, T* quantized, Wide<T>* error, const int* found,
                                     const NearestOperands<T>& in, int64_t first_vector, int head) {
  using A = Wide<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  for (int a = static_cast<int>(threadIdx.x) / kWarp; a < kTile; a += warps) {
    const bool there = first_vector + a < in.vectors;
    const int64_t vector = (first_vector + a) * in.kv_heads + head;
    const A* const codeword = in.codebook + (static_cast<int64_t>(head) * in.codes + found[a]) * in.size;
    A sum = 0;
    for (int d = lane; there && d < in.size; d += kWarp) {
      const A difference = wide(in.x[vector * in.size + d]) - codeword[d];
      quantized[vector * in.size + d] = narrow<T>(codeword[d]);
      sum += difference * difference;
    }
    sum = warp_sum(sum);
    if (there && lane == 0) {
      codes[vector] = found[a];
      error[vector] = sum;
    }
  }
}

// Says whether tensor cores take the call (vq_codes_mma.cu): bf16 in whole chunks of 8 features at multiples of 16
// bytes, 128 features at most.
bool nearest_suits_tensor_cores(const Tensor& x, const CodeSizes& sizes);
void nearest_on_tensor_cores(const Tensor& codes, const Tensor& quantized, const Tensor& error,
                             const NearestOperands<bfloat16>& in);

}  // namespace quire::cuda
