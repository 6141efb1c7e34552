// Elementwise operations. f(y, x) computes the values y of one element of the outputs from those of the inputs, x, in
// Wide<T>. An output may be one of the inputs.
#pragma once

#include "kernels/cuda/pack.h"

namespace quire::cuda {

template <typename T, int kOuts, int kIns>
struct MapOperands {
  T* out[kOuts];
  const T* in[kIns];
  int64_t count;
  bool aligned;
};

template <int kPack, typename F, typename T, int kOuts, int kIns>
__device__ inline void map_at(const F& f, const MapOperands<T, kOuts, kIns>& at, int64_t first) {
  Pack<T, kPack> in[kIns];
  Pack<T, kPack> out[kOuts];
#pragma unroll
  for (int i = 0; i < kIns; ++i) in[i] = load<kPack>(at.in[i] + first, true);
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    Wide<T> x[kIns];
    Wide<T> y[kOuts];
#pragma unroll
    for (int i = 0; i < kIns; ++i) x[i] = wide(in[i].value[k]);
    f(y, x);
#pragma unroll
    for (int o = 0; o < kOuts; ++o) out[o].value[k] = narrow<T>(y[o]);
  }
#pragma unroll
  for (int o = 0; o < kOuts; ++o) store<kPack>(at.out[o] + first, out[o], true);
}

template <typename F, typename T, int kOuts, int kIns>
__global__ void map_kernel(F f, MapOperands<T, kOuts, kIns> at) {
  constexpr int kPack = kPackOf<T>;
  const int64_t packs = at.aligned ? at.count / kPack : 0;
  for (int64_t i = first_element(); i < packs; i += element_stride()) map_at<kPack>(f, at, i * kPack);
  for (int64_t i = packs * kPack + first_element(); i < at.count; i += element_stride()) map_at<1>(f, at, i);
}

template <typename T, typename F, int kOuts, int kIns>
void map(const F& f, const Tensor* const (&out)[kOuts], const Tensor* const (&in)[kIns]) {
  MapOperands<T, kOuts, kIns> operands;
  operands.count = out[0]->numel();
  operands.aligned = true;
  for (int o = 0; o < kOuts; ++o) {
    operands.out[o] = out[o]->template data<T>();
    operands.aligned = operands.aligned && are_aligned({operands.out[o]});
  }
  for (int i = 0; i < kIns; ++i) {
    operands.in[i] = in[i]->template data<T>();
    operands.aligned = operands.aligned && are_aligned({operands.in[i]});
  }
  launch(map_kernel<F, T, kOuts, kIns>, blocks_for(ceil_div(operands.count, operands.aligned ? kPackOf<T> : 1)), kBlock,
         0, f, operands);
}

}  // namespace quire::cuda
