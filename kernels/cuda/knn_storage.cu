// Vectors stored as i8 with one scale each.
#include <cmath>

#include "kernels/cuda/runtime.h"
#include "kernels/knn_scale.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

namespace {

// A warp a vector.
template <typename X>
__global__ void quantize_vectors_kernel(int8_t* out, bfloat16* scale, const X* x, int64_t vectors, int64_t width) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (vector >= vectors) return;  // whole warps; there is no barrier of the block
  const X* const from = x + vector * width;
  Wide<X> largest = 0;
  for (int64_t d = lane; d < width; d += kWarp) {
    const Wide<X> size = std::abs(wide(from[d]));
    largest = size > largest || size != size ? size : largest;
    if (largest != largest) break;
  }
  const bfloat16 factor = scale_reaching(warp_max(largest));
  if (lane == 0) scale[vector] = factor;
  const double step = static_cast<float>(factor);
  for (int64_t d = lane; d < width; d += kWarp) {
    // The quotient in f64 rounds to a tie only where it is one.
    out[vector * width + d] =
        step > 0 ? static_cast<int8_t>(std::rint(static_cast<double>(wide(from[d])) / step)) : int8_t{0};
  }
}

void quantize_vectors(const Tensor& out, const Tensor& scale, const Tensor& x) {
  check_quantized("quantize_vectors", out, scale, x);
  dispatch(x.dtype(), [&](auto type) {
    using X = decltype(type);
    launch(quantize_vectors_kernel<X>, dim3(static_cast<unsigned>(ceil_div(scale.numel(), kBlock / kWarp))), kBlock, 0,
           out.data<int8_t>(), scale.data<bfloat16>(), x.data<X>(), scale.numel(), x.dim(-1));
  });
}

template <typename X>
__global__ void dequantize_vectors_kernel(X* out, const int8_t* in, const bfloat16* scale, int64_t count,
                                          int64_t width) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    out[i] = static_cast<X>(static_cast<float>(scale[i / width]) * static_cast<float>(in[i]));
  }
}

void dequantize_vectors(const Tensor& out, const Tensor& in, const Tensor& scale) {
  check_quantized("dequantize_vectors", in, scale, out);
  dispatch(out.dtype(), [&](auto type) {
    using X = decltype(type);
    launch(dequantize_vectors_kernel<X>, blocks_for(out.numel()), kBlock, 0, out.data<X>(), in.data<int8_t>(),
           scale.data<bfloat16>(), out.numel(), out.dim(-1));
  });
}

}  // namespace

void bind_knn_storage() {
  ops::quantize_vectors.bind(DeviceKind::cuda, quantize_vectors);
  ops::dequantize_vectors.bind(DeviceKind::cuda, dequantize_vectors);
}

}  // namespace quire::cuda
