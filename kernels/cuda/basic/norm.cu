#include "kernels/norm.h"

#include "kernels/checks.h"
#include "kernels/cuda/basic/norm_team.h"

namespace quire::cuda {

namespace {

// Computes RMSNorm, or with kLayer LayerNorm with its mean [M] and bias. rstd is [M].
template <typename T, int kPack, bool kWhole, bool kLayer>
__global__ void norm_kernel(T* y, Wide<T>* mean, Wide<T>* rstd, const T* x, const Wide<T>* weight, const Wide<T>* bias,
                            Wide<T> eps, int64_t rows, int64_t width, bool aligned) {
  using W = Wide<T>;
  __shared__ W partial[kBlock / kWarp];
  const Team<kWhole> team;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.count + team.index;
  if (row >= rows) return;  // the whole team returns
  const T* const in = x + row * width;
  W mu = 0;
  if constexpr (kLayer) {
    W sum = 0;
    for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
      const Pack<T, kPack> pack = load<kPack>(in + n, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum += wide(pack.value[k]);
    }
    mu = team.sum(sum, partial) / static_cast<W>(width);
  }
  W squares = 0;
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    const Pack<T, kPack> pack = load<kPack>(in + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const W centred = wide(pack.value[k]) - mu;
      squares += centred * centred;
    }
  }
  const W r = W{1} / std::sqrt(team.sum(squares, partial) / static_cast<W>(width) + eps);
  if (team.lane == 0) {
    if constexpr (kLayer) mean[row] = mu;
    rstd[row] = r;
  }
  for (int64_t n = team.lane * kPack; n < width; n += team.lanes * kPack) {
    Pack<T, kPack> pack = load<kPack>(in + n, aligned);
    const Pack<W, kPack> w = load<kPack>(weight + n, aligned);
    Pack<W, kPack> b{};
    if constexpr (kLayer) b = load<kPack>(bias + n, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      pack.value[k] = narrow<T>((wide(pack.value[k]) - mu) * r * w.value[k] + b.value[k]);
    }
    store<kPack>(y + row * width + n, pack, aligned);
  }
}

template <bool kLayer>
void run_norm(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& weight,
              const Tensor& bias, double eps) {
  const int64_t rows = rstd.numel();
  const int64_t width = x.dim(-1);
  bool aligned = are_aligned({y.raw(), x.raw(), weight.raw()});
  if constexpr (kLayer) aligned = aligned && are_aligned({bias.raw()});
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    with_team<T>(width, [&](auto pack, auto whole) {
      constexpr int kPack = decltype(pack)::value;
      constexpr bool kWhole = decltype(whole)::value;
      launch(norm_kernel<T, kPack, kWhole, kLayer>, blocks_for_rows(rows, kWhole), kBlock, 0, y.data<T>(),
             kLayer ? mean.data<Wide<T>>() : nullptr, rstd.data<Wide<T>>(), x.data<T>(), weight.data<Wide<T>>(),
             kLayer ? bias.data<Wide<T>>() : nullptr, eps, rows, width, aligned);
    });
  });
}

void rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight, double eps) {
  check_norm("rms_norm", y, x, weight, rstd);
  run_norm<false>(y, Tensor(), rstd, x, weight, Tensor(), eps);
}

void layer_norm(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                const Tensor& bias, double eps) {
  check_norm("layer_norm", y, x, weight, rstd);
  check_norm("layer_norm", y, x, bias, mean);
  run_norm<true>(y, mean, rstd, x, weight, bias, eps);
}

}  // namespace

void bind_norm() {
  ops::layer_norm.bind(DeviceKind::cuda, layer_norm);
  ops::rms_norm.bind(DeviceKind::cuda, rms_norm);
}

}  // namespace quire::cuda
