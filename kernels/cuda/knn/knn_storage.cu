// Vectors stored as i8 or f8 with one scale each.
#include <cmath>

#include "kernels/cuda/runtime.h"
#include "kernels/knn_scale.h"
#include "kernels/knn_sizes.h"

namespace quire::cuda {

namespace {

// Calls function(X{}, S{}) with the types of the numbers and of stored vectors.
template <typename Function>
void dispatch_both(DType numbers, DType stored, Function&& function) {
  dispatch(numbers, [&](auto type) {
    if (stored == DType::f8) return function(type, float8{});
    return function(type, int8_t{});
  });
}

// Returns the number of a type that is nearest to a quotient in f64. The quotient lies halfway between two of them only
// where the exact one does.
template <typename S>
__device__ inline S nearest(double quotient) {
  if constexpr (std::is_same_v<S, float8>) {
    return float8(quotient);
  } else {
    return static_cast<S>(std::rint(quotient));
  }
}

// A warp stores one vector.
template <typename X, typename S>
__global__ void quantize_vectors_kernel(S* out, bfloat16* scale, const X* x, int64_t vectors, int64_t width) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (vector >= vectors) return;  // whole warps return, and the block has no barrier
  const X* const from = x + vector * width;
  Wide<X> largest = 0;
  for (int64_t d = lane; d < width; d += kWarp) {
    const Wide<X> size = std::abs(wide(from[d]));
    largest = size > largest || size != size ? size : largest;
    if (largest != largest) break;
  }
  const bfloat16 factor = scale_reaching(warp_max(largest), kLargestStored<S>);
  if (lane == 0) scale[vector] = factor;
  const double step = static_cast<float>(factor);
  for (int64_t d = lane; d < width; d += kWarp) {
    out[vector * width + d] = step > 0 ? nearest<S>(static_cast<double>(wide(from[d])) / step) : S{};
  }
}

void quantize_vectors(const Tensor& out, const Tensor& scale, const Tensor& x) {
  check_quantized("quantize_vectors", out, scale, x);
  dispatch_both(x.dtype(), out.dtype(), [&](auto type, auto stored) {
    using X = decltype(type);
    using S = decltype(stored);
    launch(quantize_vectors_kernel<X, S>, dim3(static_cast<unsigned>(ceil_div(scale.numel(), kBlock / kWarp))), kBlock,
           0, out.data<S>(), scale.data<bfloat16>(), x.data<X>(), scale.numel(), x.dim(-1));
  });
}

template <typename X, typename S>
__global__ void dequantize_vectors_kernel(X* out, const S* in, const bfloat16* scale, int64_t count, int64_t width) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    out[i] = static_cast<X>(static_cast<float>(scale[i / width]) * static_cast<float>(in[i]));
  }
}

void dequantize_vectors(const Tensor& out, const Tensor& in, const Tensor& scale) {
  check_quantized("dequantize_vectors", in, scale, out);
  dispatch_both(out.dtype(), in.dtype(), [&](auto type, auto stored) {
    using X = decltype(type);
    using S = decltype(stored);
    launch(dequantize_vectors_kernel<X, S>, blocks_for(out.numel()), kBlock, 0, out.data<X>(), in.data<S>(),
           scale.data<bfloat16>(), out.numel(), out.dim(-1));
  });
}

}  // namespace

void bind_knn_storage() {
  ops::quantize_vectors.bind(DeviceKind::cuda, quantize_vectors);
  ops::dequantize_vectors.bind(DeviceKind::cuda, dequantize_vectors);
}

}  // namespace quire::cuda
