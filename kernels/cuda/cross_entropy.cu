#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/checks.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

// sum of exp(x - top), in one pass: what was summed shrinks when a larger value comes.
template <typename W>
struct SumOfExponentials {
  // Not -inf, from which nothing can be subtracted.
  W top = std::numeric_limits<W>::lowest();
  W sum = 0;

  // top does not fall. Not-a-number stays.
  __device__ void raise(W to) {
    sum *= std::exp(top - to);
    top = to;
  }
  template <int kCount>
  __device__ void add(const W (&x)[kCount]) {
    W most = top;
#pragma unroll
    for (int k = 0; k < kCount; ++k) most = x[k] > most || x[k] != x[k] ? x[k] : most;
    raise(most);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum += std::exp(x[k] - most);
  }
};

// A pack of which only `left` values belong to the row; the others count for nothing.
template <int kPack, typename T>
__device__ inline Pack<T, kPack> load_part(const T* from, int64_t left, bool aligned) {
  if (left >= kPack) return load<kPack>(from, aligned);
  Pack<T, kPack> pack;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    pack.value[k] = k < left ? from[k] : narrow<T>(-std::numeric_limits<Wide<T>>::infinity());
  }
  return pack;
}

// A block a row.
template <typename T, int kPack>
__global__ void cross_entropy_kernel(Wide<T>* nll, Wide<T>* lse, const T* logits, const int32_t* targets,
                                     const uint8_t* mask, int64_t width, int64_t stride, bool aligned) {
  using W = Wide<T>;
  __shared__ W of_warps[kBlock / kWarp];
  const int64_t row = blockIdx.x;
  const T* const x = logits + row * stride;
  SumOfExponentials<W> total;
  for (int64_t v = static_cast<int64_t>(threadIdx.x) * kPack; v < width; v += kBlock * kPack) {
    const Pack<T, kPack> pack = load_part<kPack>(x + v, width - v, aligned);
    W values[kPack];
#pragma unroll
    for (int k = 0; k < kPack; ++k) values[k] = wide(pack.value[k]);
    total.add(values);
  }
  const W of_warp = warp_max(total.top);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  W top = of_warps[0];
  for (int w = 1; w < kBlock / kWarp; ++w) top = of_warps[w] > top || of_warps[w] != of_warps[w] ? of_warps[w] : top;
  __syncthreads();
  total.raise(top);
  const W sum = block_sum(total.sum, of_warps);
  if (threadIdx.x != 0) return;  // past the last barrier
  const W log_sum = top + std::log(sum);
  lse[row] = log_sum;
  const int64_t target = targets[row];
  const bool known = target >= 0 && target < width;
  nll[row] = mask[row] == 0 ? W{0} : known ? log_sum - wide(x[target]) : std::numeric_limits<W>::quiet_NaN();
}

void cross_entropy(const Tensor& nll, const Tensor& lse, const Tensor& logits, const Tensor& targets,
                   const Tensor& mask) {
  check_cross_entropy(nll, lse, logits, targets, mask);
  const int64_t width = logits.dim(1);
  const bool aligned = are_aligned({logits.raw()});
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(logits.stride(0), [&](auto pack) {
      launch(cross_entropy_kernel<T, decltype(pack)::value>, dim3(static_cast<unsigned>(logits.dim(0))), kBlock, 0,
             nll.data<Wide<T>>(), lse.data<Wide<T>>(), logits.data<T>(), targets.data<int32_t>(), mask.data<uint8_t>(),
             width, logits.stride(0), aligned);
    });
  });
}

template <typename To, typename From, int kPack>
__global__ void cross_entropy_backward_kernel(To* dlogits, const From* logits, const Wide<From>* lse,
                                              const int32_t* targets, const uint8_t* mask, const double* factor,
                                              int64_t width, int64_t stride, int64_t dstride, unsigned blocks_of_row,
                                              bool aligned) {
  using W = Wide<From>;
  const int64_t row = blockIdx.x / blocks_of_row;
  const int64_t v = (static_cast<int64_t>(blockIdx.x % blocks_of_row) * kBlock + threadIdx.x) * kPack;
  if (v >= width) return;
  const W weight = mask[row] == 0 ? W{0} : static_cast<W>(*factor);
  const int64_t target = targets[row];
  const W log_sum = lse[row];
  const Pack<From, kPack> x = load_part<kPack>(logits + row * stride + v, width - v, aligned);
  Pack<To, kPack> dx;
#pragma unroll
  for (int k = 0; k < kPack; ++k) {
    W value = weight * std::exp(wide(x.value[k]) - log_sum);
    if (v + k == target) value -= weight;
    // Nothing, not zero times what the logits are, of what is not counted.
    dx.value[k] = static_cast<To>(mask[row] == 0 ? W{0} : value);
  }
  if (v + kPack <= width) {
    store<kPack>(dlogits + row * dstride + v, dx, aligned);
    return;
  }
  for (int k = 0; v + k < width; ++k) dlogits[row * dstride + v + k] = dx.value[k];
}

template <typename To, typename From>
void run_backward(const Tensor& dlogits, const Tensor& logits, const Tensor& lse, const Tensor& targets,
                  const Tensor& mask, const Tensor& factor) {
  const int64_t rows = logits.dim(0);
  const int64_t width = logits.dim(1);
  const bool aligned = are_aligned({dlogits.raw(), logits.raw()});
  // A pack begins at as many values of either.
  const int64_t both = logits.stride(0) % kPackOf<From> == 0 ? dlogits.stride(0) : logits.stride(0);
  with_pack<From>(both, [&](auto pack) {
    constexpr int kPack = decltype(pack)::value;
    const auto blocks_of_row = static_cast<unsigned>(ceil_div(width, kBlock * kPack));
    launch(cross_entropy_backward_kernel<To, From, kPack>, dim3(static_cast<unsigned>(rows) * blocks_of_row), kBlock, 0,
           dlogits.data<To>(), logits.data<From>(), lse.data<Wide<From>>(), targets.data<int32_t>(),
           mask.data<uint8_t>(), factor.data<double>(), width, logits.stride(0), dlogits.stride(0), blocks_of_row,
           aligned);
  });
}

void cross_entropy_backward(const Tensor& dlogits, const Tensor& logits, const Tensor& lse, const Tensor& targets,
                            const Tensor& mask, const Tensor& factor) {
  check_cross_entropy_backward(dlogits, logits, lse, targets, mask, factor);
  if (logits.dtype() == DType::f32 && dlogits.dtype() == DType::bf16) {
    run_backward<bfloat16, float>(dlogits, logits, lse, targets, mask, factor);
    return;
  }
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    run_backward<T, T>(dlogits, logits, lse, targets, mask, factor);
  });
}

}  // namespace

void bind_cross_entropy() {
  ops::cross_entropy.bind(DeviceKind::cuda, cross_entropy);
  ops::cross_entropy_backward.bind(DeviceKind::cuda, cross_entropy_backward);
}

}  // namespace quire::cuda
