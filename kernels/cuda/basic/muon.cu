// Muon before and after the Newton-Schulz iteration. kernels/optimizer.h describes `control`.
#include "kernels/checks.h"
#include "kernels/cuda/pack.h"
#include "kernels/optimizer.h"

namespace quire::cuda {

namespace {

template <typename T>
__global__ void muon_direction_kernel(T* direction, T* momentum, const T* gradient, const double* control, T beta,
                                      bool nesterov, int64_t count) {
  const bool applied = control[1] != 0;
  const T scale = static_cast<T>(control[0]);
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    if (!applied) {
      direction[i] = 0;
      continue;
    }
    const T g = gradient[i] * scale;
    const T kept = beta * momentum[i] + g;
    momentum[i] = kept;
    direction[i] = nesterov ? g + beta * kept : kept;
  }
}

void muon_direction(const Tensor& direction, const Tensor& momentum, const Tensor& gradient, const Tensor& control,
                    double beta, bool nesterov) {
  check_muon_direction(direction, momentum, gradient, control);
  dispatch_wide(momentum.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(muon_direction_kernel<T>, blocks_for(momentum.numel()), kBlock, 0, direction.data<T>(), momentum.data<T>(),
           gradient.data<T>(), control.data<double>(), static_cast<T>(beta), nesterov, momentum.numel());
  });
}

template <typename T>
__global__ void muon_update_kernel(T* w, const T* direction, const double* control, T rate, T keep, int64_t count) {
  if (control[1] == 0) return;
  for (int64_t i = first_element(); i < count; i += element_stride()) w[i] = keep * w[i] - rate * direction[i];
}

void muon_update(const Tensor& w, const Tensor& direction, const Tensor& control, double rate, double decay) {
  check_muon_update(w, direction, control);
  dispatch_wide(w.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(muon_update_kernel<T>, blocks_for(w.numel()), kBlock, 0, w.data<T>(), direction.data<T>(),
           control.data<double>(), static_cast<T>(rate), static_cast<T>(1.0 - decay), w.numel());
  });
}

template <typename T>
__global__ void divide_by_norm_kernel(T* x, const double* squared_norm, int64_t count) {
  const double factor = *squared_norm > 0 ? 1 / std::sqrt(*squared_norm) : 0.0;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    x[i] = static_cast<T>(static_cast<double>(x[i]) * factor);
  }
}

void divide_by_norm(const Tensor& x, const Tensor& squared_norm) {
  check_divide_by_norm(x, squared_norm);
  dispatch_wide(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(divide_by_norm_kernel<T>, blocks_for(x.numel()), kBlock, 0, x.data<T>(), squared_norm.data<double>(),
           x.numel());
  });
}

}  // namespace

void bind_muon() {
  ops::muon_direction.bind(DeviceKind::cuda, muon_direction);
  ops::muon_update.bind(DeviceKind::cuda, muon_update);
  ops::divide_by_norm.bind(DeviceKind::cuda, divide_by_norm);
}

}  // namespace quire::cuda
