// Parts of the online softmax over tiles of pairs (the maximum and the sum of a line, and the step to another tile),
// and the delta of the backward pass.
#pragma once

#include "kernels/cuda/pack.h"
#include "kernels/cuda/tiles.h"

namespace quire::cuda {

// Returns the largest value of the 16 threads of a line, which are half a warp, to all of them.
template <typename A>
__device__ inline A largest_of_line(A value) {
  for (int bits = kSide / 2; bits > 0; bits /= 2) {
    const A other = __shfl_xor_sync(kAllLanes, value, bits);
    value = other > value ? other : value;
  }
  return value;
}
template <typename A>
__device__ inline A sum_of_line(A value) {
  for (int bits = kSide / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// Adds further logits to the softmax of line i of a thread's pairs and rescales the sums so far. `largest` is the
// largest of these logits within the thread. Returns the largest logit of the whole line so far.
template <typename A, int kChunks>
__device__ inline A go_on(A& top, A& sum, Pairs<A> (&totals)[kChunks], int i, A largest) {
  largest = largest_of_line(largest);
  const A correction = std::exp(top - largest);
  top = largest;
  sum *= correction;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
    for (int n = 0; n < kQuad; ++n) totals[chunk][i][n] *= correction;
  }
  return largest;
}

// Describes lines of `width` value features in [R, T, H, Dv]: one for each row, query and head.
struct ValueLines {
  int64_t count, queries, heads, width;

  // Returns the index of a line in [R, H, T].
  __device__ int64_t in_delta(int64_t line) const {
    const int64_t query = line / heads;
    return (query / queries * heads + line % heads) * queries + query % queries;
  }
};
inline ValueLines value_lines(const Tensor& values) {
  return {values.dim(0) * values.dim(1) * values.dim(2), values.dim(1), values.dim(2), values.dim(3)};
}

inline constexpr int kDeltaLanes = 8;  // lanes of a line, which read 128 bytes at once

// Computes delta [R, H, T] = dout . out over the value features of a query and head.
template <typename T, int kPack>
__global__ void delta_kernel(Wide<T>* delta, const T* dout, const T* out, ValueLines lines, bool aligned) {
  const int64_t line = first_element() / kDeltaLanes;
  const int lane = static_cast<int>(threadIdx.x) % kDeltaLanes;
  Wide<T> sum = 0;
  if (line < lines.count) {
    const int64_t begin = line * lines.width;
    for (int64_t f = lane * kPack; f < lines.width; f += kDeltaLanes * kPack) {
      const Pack<T, kPack> dy = load<kPack>(dout + begin + f, aligned);
      const Pack<T, kPack> y = load<kPack>(out + begin + f, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum += wide(dy.value[k]) * wide(y.value[k]);
    }
  }
  for (int bits = kDeltaLanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAllLanes, sum, bits);
  if (line < lines.count && lane == 0) delta[lines.in_delta(line)] = sum;
}

// Launches delta_kernel for dout and out [R, T, H, Dv].
template <typename T>
void launch_delta(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  const ValueLines lines = value_lines(out);
  const bool aligned = are_aligned({dout.raw(), out.raw()});
  with_pack<T>(lines.width, [&](auto pack) {
    launch(delta_kernel<T, decltype(pack)::value>,
           dim3(static_cast<unsigned>(ceil_div(lines.count, kBlock / kDeltaLanes))), kBlock, 0, delta.data<Wide<T>>(),
           dout.data<T>(), out.data<T>(), lines, aligned);
  });
}

}  // namespace quire::cuda
