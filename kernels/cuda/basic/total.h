// The sum of all values in f64, in a fixed order that depends on their number alone.
#pragma once

#include "kernels/cuda/basic/columns.h"

namespace quire::cuda {

struct Squared {
  template <typename To, typename From>
  __device__ To term(From x) const {
    return static_cast<To>(wide(x)) * static_cast<To>(wide(x));
  }
};

// Computes out[block] (+)= the sum of the block's share.
template <typename From, typename Term>
__global__ void total_kernel(double* out, const From* in, int64_t count, Term term, bool accumulate) {
  __shared__ double partial[kBlock / kWarp];
  double sum = 0;
#pragma unroll 4
  for (int64_t i = first_element(); i < count; i += element_stride()) sum += term.template term<double>(in[i]);
  sum = block_sum(sum, partial);
  if (threadIdx.x == 0) out[blockIdx.x] = (accumulate ? out[blockIdx.x] : 0.0) + sum;
}

template <typename From, typename Term = Itself>
void add_up(Device device, double* out, const From* in, int64_t count, bool accumulate, Term term = {}) {
  constexpr int64_t kOfBlock = 16 * kBlock;
  constexpr int64_t kMaxParts = 1024;
  const int64_t needed_parts = ceil_div(count, kOfBlock);
  const int64_t parts = needed_parts < kMaxParts ? needed_parts : kMaxParts;
  if (parts <= 1) {
    launch(total_kernel<From, Term>, dim3(1), kBlock, 0, out, in, count, term, accumulate);
    return;
  }
  const Tensor partial = Tensor::empty({parts}, DType::f64, device);
  double* const sums = partial.data<double>();
  launch(total_kernel<From, Term>, dim3(static_cast<unsigned>(parts)), kBlock, 0, sums, in, count, term, false);
  launch(total_kernel<double, Itself>, dim3(1), kBlock, 0, out, static_cast<const double*>(sums), parts, Itself{},
         accumulate);
}

}  // namespace quire::cuda
