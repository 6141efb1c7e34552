// AdamW, the moving average of weights, and the check of a step's outcome. kernels/optimizer.h describes `control`.
#include "kernels/optimizer.h"

#include "kernels/checks.h"
#include "kernels/cuda/pack.h"

namespace quire::cuda {

namespace {

__global__ void step_outcome_kernel(double* outcome, const double* loss_sum, const double* squared_norm,
                                    ops::StepOutcome options) {
  if (threadIdx.x == 0) judge_step(outcome, *loss_sum, std::sqrt(*squared_norm), options);
}

void step_outcome(const Tensor& outcome, const Tensor& loss_sum, const Tensor& squared_norm,
                  const ops::StepOutcome& options) {
  check_step_outcome(outcome, loss_sum, squared_norm);
  launch(step_outcome_kernel, dim3(1), kWarp, 0, outcome.data<double>(), loss_sum.data<double>(),
         squared_norm.data<double>(), options);
}

// Holds AdamW's settings as the factors that the kernel uses.
template <typename T>
struct AdamWFactors {
  T b1, b2, a1, a2;
  T rate;
  T root;
  T eps;
  T keep;
};

template <typename T>
__device__ inline void adamw_at(T& w, T& m, T& v, T gradient, T scale, const AdamWFactors<T>& f) {
  const T g = gradient * scale;
  m = f.b1 * m + f.a1 * g;
  v = f.b2 * v + f.a2 * g * g;
  w = f.keep * w - f.rate * m / (std::sqrt(v) * f.root + f.eps);
}

template <typename T>
__global__ void adamw_kernel(T* w, T* m, T* v, const T* gradient, const double* control, AdamWFactors<T> factors,
                             int64_t count, bool aligned) {
  if (control[1] == 0) return;
  const T scale = static_cast<T>(control[0]);
  constexpr int kPack = kPackOf<T>;
  const int64_t packs = aligned ? count / kPack : 0;
  for (int64_t i = first_element(); i < packs; i += element_stride()) {
    Pack<T, kPack> weight = load<kPack>(w + i * kPack, true);
    Pack<T, kPack> first = load<kPack>(m + i * kPack, true);
    Pack<T, kPack> second = load<kPack>(v + i * kPack, true);
    const Pack<T, kPack> g = load<kPack>(gradient + i * kPack, true);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      adamw_at(weight.value[k], first.value[k], second.value[k], g.value[k], scale, factors);
    }
    store<kPack>(w + i * kPack, weight, true);
    store<kPack>(m + i * kPack, first, true);
    store<kPack>(v + i * kPack, second, true);
  }
  for (int64_t i = packs * kPack + first_element(); i < count; i += element_stride()) {
    adamw_at(w[i], m[i], v[i], gradient[i], scale, factors);
  }
}

void adamw(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const Tensor& control,
           const ops::AdamW& o) {
  check_adamw(w, m, v, gradient, control);
  const double correction1 = 1.0 - std::pow(o.beta1, static_cast<double>(o.step));
  const double correction2 = 1.0 - std::pow(o.beta2, static_cast<double>(o.step));
  const bool aligned = are_aligned({w.raw(), m.raw(), v.raw(), gradient.raw()});
  dispatch_wide(w.dtype(), [&](auto type) {
    using T = decltype(type);
    const AdamWFactors<T> factors{.b1 = static_cast<T>(o.beta1),
                                  .b2 = static_cast<T>(o.beta2),
                                  .a1 = static_cast<T>(1.0 - o.beta1),
                                  .a2 = static_cast<T>(1.0 - o.beta2),
                                  .rate = static_cast<T>(o.learning_rate / correction1),
                                  .root = static_cast<T>(1.0 / std::sqrt(correction2)),
                                  .eps = static_cast<T>(o.eps),
                                  .keep = static_cast<T>(1.0 - o.decay)};
    launch(adamw_kernel<T>, blocks_for(ceil_div(w.numel(), aligned ? kPackOf<T> : 1)), kBlock, 0, w.data<T>(),
           m.data<T>(), v.data<T>(), gradient.data<T>(), control.data<double>(), factors, w.numel(), aligned);
  });
}

template <typename T>
__global__ void moving_average_kernel(T* average, const T* w, const double* control, T step, int64_t count) {
  if (control[1] == 0) return;
  for (int64_t i = first_element(); i < count; i += element_stride()) average[i] += step * (w[i] - average[i]);
}

void moving_average(const Tensor& average, const Tensor& w, const Tensor& control, double keep) {
  check_moving_average(average, w, control);
  dispatch_wide(w.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(moving_average_kernel<T>, blocks_for(w.numel()), kBlock, 0, average.data<T>(), w.data<T>(),
           control.data<double>(), 1.0 - keep, w.numel());
  });
}

}  // namespace

void bind_optimizer() {
  ops::adamw.bind(DeviceKind::cuda, adamw);
  ops::moving_average.bind(DeviceKind::cuda, moving_average);
  ops::step_outcome.bind(DeviceKind::cuda, step_outcome);
}

}  // namespace quire::cuda
