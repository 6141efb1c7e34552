#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/optimizer.h"

namespace quire::cpu {

namespace {

void muon_direction(const Tensor& direction, const Tensor& momentum, const Tensor& gradient, const Tensor& control,
                    double beta, bool nesterov) {
  check_muon_direction(direction, momentum, gradient, control);
  if (control.data<double>()[1] == 0) {
    direction.zero();
    return;
  }
  dispatch("muon_direction", momentum.dtype(), [&](auto type) {
    using T = decltype(type);
    T* to = direction.data<T>();
    T* kept = momentum.data<T>();
    const T* grad = gradient.data<T>();
    const T factor = static_cast<T>(control.data<double>()[0]);
    const T keep = static_cast<T>(beta);
    for_elements(momentum.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T g = grad[i] * factor;
        kept[i] = keep * kept[i] + g;
        to[i] = nesterov ? g + keep * kept[i] : kept[i];
      }
    });
  });
}

void muon_update(const Tensor& w, const Tensor& direction, const Tensor& control, double rate, double decay) {
  check_muon_update(w, direction, control);
  if (control.data<double>()[1] == 0) return;
  dispatch("muon_update", w.dtype(), [&](auto type) {
    using T = decltype(type);
    T* weight = w.data<T>();
    const T* along = direction.data<T>();
    const T step = static_cast<T>(rate);
    const T keep = static_cast<T>(1.0 - decay);
    for_elements(w.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) weight[i] = keep * weight[i] - step * along[i];
    });
  });
}

void divide_by_norm(const Tensor& x, const Tensor& squared_norm) {
  check_divide_by_norm(x, squared_norm);
  const double square = squared_norm.data<double>()[0];
  const double factor = square > 0 ? 1 / std::sqrt(square) : 0.0;
  dispatch("divide_by_norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* values = x.data<T>();
    for_elements(x.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
    });
  });
}

}  // namespace

void bind_muon() {
  ops::muon_direction.bind(DeviceKind::cpu, muon_direction);
  ops::muon_update.bind(DeviceKind::cpu, muon_update);
  ops::divide_by_norm.bind(DeviceKind::cpu, divide_by_norm);
}

}  // namespace quire::cpu
