// Parts of the online softmax over tiles of pairs: the maximum and the sum of a line, going on with another tile, and
// the delta of the backward pass.
#pragma once

#include "kernels/cuda/tiles.h"

namespace quire::cuda {

// Over the 16 threads of a line, half a warp; all of them get it.
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

// Line i of a thread's pairs goes on with further logits, whose largest within the thread is given: the sums so far are
// rescaled. Returns the largest logit of the whole line so far.
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

// delta [R, H, T]: dout . out over the value features of a query and head; a warp each.
template <typename T>
__global__ void delta_kernel(Wide<T>* delta, const T* dout, const T* out, int64_t lines, int queries, int heads,
                             int value_size) {
  const int64_t line = first_element() / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Wide<T> sum = 0;
  if (line < lines) {
    for (int f = lane; f < value_size; f += kWarp) {
      sum += wide(dout[line * value_size + f]) * wide(out[line * value_size + f]);
    }
  }
  sum = warp_sum(sum);
  if (line >= lines || lane != 0) return;
  const int64_t head = line % heads;
  const int64_t query = line / heads % queries;
  const int64_t row = line / heads / queries;
  delta[(row * heads + head) * queries + query] = sum;
}

// dout, out [R, T, H, Dv].
template <typename T>
void launch_delta(const Tensor& delta, const Tensor& dout, const Tensor& out) {
  launch(delta_kernel<T>, dim3(static_cast<unsigned>(ceil_div(delta.numel(), kBlock / kWarp))), kBlock, 0,
         delta.data<Wide<T>>(), dout.data<T>(), out.data<T>(), delta.numel(), static_cast<int>(out.dim(1)),
         static_cast<int>(out.dim(2)), static_cast<int>(out.dim(3)));
}

}  // namespace quire::cuda
