#include "kernels/norm.h"

#include "kernels/checks.h"
#include "kernels/cuda/basic/norm_team.h"

namespace quire::cuda {

namespace {

template <typename T, int kPack, bool kWhole>
__global__ void l2_norm_kernel(T* y, Wide<T>* rnorm, const T* x, Wide<T> eps, int64_t rows, int64_t width,
                               bool aligned) {
  using W = Wide<T>;
  __shared__ W partial[kBlock / kWarp];
  const Team<kWhole> team;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.count + team.index;
  if (row >= rows) return;  // the whole team returns
  W squares = 0;
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    const Pack<T, kPack> pack = load<kPack>(x + row * width + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) squares += wide(pack.value[k]) * wide(pack.value[k]);
  }
  const W r = W{1} / std::sqrt(team.sum(squares, partial) + eps);
  if (team.lane == 0) rnorm[row] = r;
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    Pack<T, kPack> pack = load<kPack>(x + row * width + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) pack.value[k] = narrow<T>(wide(pack.value[k]) * r);
    store<kPack>(y + row * width + n, pack, aligned);
  }
}

void l2_norm(const Tensor& y, const Tensor& rnorm, const Tensor& x, double eps) {
  check_l2_norm("l2_norm", y, x, rnorm);
  const int64_t rows = rnorm.numel();
  const int64_t width = x.dim(-1);
  const bool aligned = are_aligned({y.raw(), x.raw()});
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    with_team<T>(width, [&](auto pack, auto whole) {
      constexpr int kPack = decltype(pack)::value;
      constexpr bool kWhole = decltype(whole)::value;
      launch(l2_norm_kernel<T, kPack, kWhole>, blocks_for_rows(rows, kWhole), kBlock, 0, y.data<T>(),
             rnorm.data<Wide<T>>(), x.data<T>(), eps, rows, width, aligned);
    });
  });
}

template <typename T, int kPack, bool kWhole>
__global__ void l2_norm_backward_kernel(T* dx, const T* dy, const T* y, const Wide<T>* rnorm, int64_t rows,
                                        int64_t width, bool aligned) {
  using W = Wide<T>;
  __shared__ W partial[kBlock / kWarp];
  const Team<kWhole> team;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.count + team.index;
  if (row >= rows) return;  // the whole team returns
  W sum = 0;
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    const Pack<T, kPack> out = load<kPack>(y + row * width + n, aligned);
    const Pack<T, kPack> grad = load<kPack>(dy + row * width + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) sum += wide(grad.value[k]) * wide(out.value[k]);
  }
  const W dot = team.sum(sum, partial);
  const W r = rnorm[row];
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    const Pack<T, kPack> out = load<kPack>(y + row * width + n, aligned);
    Pack<T, kPack> grad = load<kPack>(dy + row * width + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      grad.value[k] = narrow<T>(r * (wide(grad.value[k]) - wide(out.value[k]) * dot));
    }
    store<kPack>(dx + row * width + n, grad, aligned);
  }
}

void l2_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& rnorm) {
  check_l2_norm("l2_norm_backward", dx, y, rnorm);
  check_l2_norm("l2_norm_backward", dy, y, rnorm);
  const int64_t rows = rnorm.numel();
  const int64_t width = y.dim(-1);
  const bool aligned = are_aligned({dx.raw(), dy.raw(), y.raw()});
  dispatch(y.dtype(), [&](auto type) {
    using T = decltype(type);
    with_team<T>(width, [&](auto pack, auto whole) {
      constexpr int kPack = decltype(pack)::value;
      constexpr bool kWhole = decltype(whole)::value;
      launch(l2_norm_backward_kernel<T, kPack, kWhole>, blocks_for_rows(rows, kWhole), kBlock, 0, dx.data<T>(),
             dy.data<T>(), y.data<T>(), rnorm.data<Wide<T>>(), rows, width, aligned);
    });
  });
}

}  // namespace

void bind_l2_norm() {
  ops::l2_norm.bind(DeviceKind::cuda, l2_norm);
  ops::l2_norm_backward.bind(DeviceKind::cuda, l2_norm_backward);
}

}  // namespace quire::cuda
