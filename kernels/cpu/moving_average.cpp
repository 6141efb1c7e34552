#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/optimizer.h"

namespace quire::cpu {

namespace {

void moving_average(const Tensor& average, const Tensor& w, const Tensor& control, double keep) {
  check_moving_average(average, w, control);
  if (control.data<double>()[1] == 0) return;
  dispatch("moving_average", w.dtype(), [&](auto type) {
    using T = decltype(type);
    T* mean = average.data<T>();
    const T* value = w.data<T>();
    const T step = static_cast<T>(1.0 - keep);
    for_elements(w.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) mean[i] += step * (value[i] - mean[i]);
    });
  });
}

}  // namespace

void bind_moving_average() {
  ops::moving_average.bind(DeviceKind::cpu, moving_average);
}

}  // namespace quire::cpu
