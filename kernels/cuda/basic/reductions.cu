// Sums over rows and over all values, and the scales of heads.
#include "kernels/checks.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/basic/total.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer.h"

namespace quire::cuda {

namespace {

void sum_rows(const Tensor& out, const Tensor& in, bool accumulate) {
  check_sum_rows(out, in);
  const int64_t width = out.numel();
  if (width == 0) return;
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    sum_columns(out.device(), out.data<Wide<T>>(), static_cast<const T*>(in.data<T>()), in.numel() / width, width,
                width, accumulate);
  });
}

void sum_all(const Tensor& total, const Tensor& in) {
  dispatch(in.dtype(), [&](auto type) {
    using T = decltype(type);
    add_up(in.device(), total.data<double>(), static_cast<const T*>(in.data<T>()), in.numel(), false);
  });
}

void squared_norm(const Tensor& total, const Tensor& x) {
  dispatch_wide(x.dtype(), [&](auto type) {
    using T = decltype(type);
    add_up(x.device(), total.data<double>(), static_cast<const T*>(x.data<T>()), x.numel(), true, Squared{});
  });
}

// Multiplies each head by the size of its scale. A pack lies within a head.
template <typename T, int kPack>
__global__ void scale_heads_kernel(T* y, const T* x, const Wide<T>* s, int64_t count, int64_t heads, int64_t size,
                                   bool aligned) {
  for (int64_t i = first_element() * kPack; i < count; i += element_stride() * kPack) {
    const Wide<T> factor = std::abs(s[i / size % heads]);
    Pack<T, kPack> pack = load<kPack>(x + i, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) pack.value[k] = narrow<T>(factor * wide(pack.value[k]));
    store<kPack>(y + i, pack, aligned);
  }
}

void scale_heads(const Tensor& out, const Tensor& x, const Tensor& s) {
  check_scale_heads(out, x, s);
  const bool aligned = are_aligned({out.raw(), x.raw()});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    with_pack<T>(x.dim(-1), [&](auto pack) {
      constexpr int kPack = decltype(pack)::value;
      launch(scale_heads_kernel<T, kPack>, blocks_for(out.numel() / kPack), kBlock, 0, out.data<T>(), x.data<T>(),
             s.data<Wide<T>>(), out.numel(), s.numel(), x.dim(-1), aligned);
    });
  });
}

// Computes dx and partial [heads, parts], the sums of dy x over the tokens of a part.
template <typename T, int kPack>
__global__ void scale_heads_backward_kernel(T* dx, Wide<T>* partial, const T* dy, const T* x, const Wide<T>* s,
                                            int64_t tokens, int64_t size, bool aligned) {
  __shared__ Wide<T> of_warps[kBlock / kWarp];
  const int64_t heads = gridDim.y;
  const int64_t head = blockIdx.y;
  const int64_t begin = tokens * blockIdx.x / gridDim.x;
  const int64_t packs = size / kPack;
  const int64_t all = (tokens * (blockIdx.x + 1) / gridDim.x - begin) * packs;
  const Wide<T> factor = std::abs(s[head]);
  Wide<T> sum = 0;
  for (int64_t i = threadIdx.x; i < all; i += blockDim.x) {
    const int64_t at = ((begin + i / packs) * heads + head) * size + i % packs * kPack;
    Pack<T, kPack> given = load<kPack>(dy + at, aligned);
    const Pack<T, kPack> in = load<kPack>(x + at, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      sum += wide(given.value[k]) * wide(in.value[k]);
      given.value[k] = narrow<T>(factor * wide(given.value[k]));
    }
    store<kPack>(dx + at, given, aligned);
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) partial[head * gridDim.x + blockIdx.x] = sum;
}

template <typename W>
__global__ void scale_heads_finish_kernel(W* ds, const W* partial, const W* s, int64_t parts, bool accumulate) {
  __shared__ W of_warps[kBlock / kWarp];
  const int64_t head = blockIdx.x;
  W sum = 0;
  for (int64_t part = threadIdx.x; part < parts; part += blockDim.x) sum += partial[head * parts + part];
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) ds[head] = (accumulate ? ds[head] : W{0}) + (s[head] < 0 ? -sum : sum);
}

void scale_heads_backward(const Tensor& dx, const Tensor& ds, const Tensor& dy, const Tensor& x, const Tensor& s,
                          bool accumulate) {
  check_scale_heads_backward(dx, ds, dy, x, s);
  constexpr int64_t kOfBlock = 8 * kBlock;
  constexpr int64_t kMaxParts = 512;
  const int64_t heads = s.numel();
  const int64_t size = x.dim(-1);
  const int64_t tokens = x.numel() / (heads * size);
  const int64_t needed_parts = ceil_div(tokens * size, kOfBlock);
  const int64_t parts = needed_parts < 1 ? 1 : needed_parts < kMaxParts ? needed_parts : kMaxParts;
  const bool aligned = are_aligned({dx.raw(), dy.raw(), x.raw()});
  dispatch(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const Tensor partial = Tensor::empty({heads, parts}, dtype_of<W>(), dx.device());
    with_pack<T>(size, [&](auto pack) {
      launch(scale_heads_backward_kernel<T, decltype(pack)::value>,
             dim3(static_cast<unsigned>(parts), static_cast<unsigned>(heads)), kBlock, 0, dx.data<T>(),
             partial.data<W>(), dy.data<T>(), x.data<T>(), s.data<W>(), tokens, size, aligned);
    });
    launch(scale_heads_finish_kernel<W>, dim3(static_cast<unsigned>(heads)), kBlock, 0, ds.data<W>(), partial.data<W>(),
           s.data<W>(), parts, accumulate);
  });
}

}  // namespace

void bind_reductions() {
  ops::scale_heads.bind(DeviceKind::cuda, scale_heads);
  ops::scale_heads_backward.bind(DeviceKind::cuda, scale_heads_backward);
  ops::squared_norm.bind(DeviceKind::cuda, squared_norm);
  ops::sum_all.bind(DeviceKind::cuda, sum_all);
  ops::sum_rows.bind(DeviceKind::cuda, sum_rows);
}

}  // namespace quire::cuda
