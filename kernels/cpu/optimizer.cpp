#include "kernels/optimizer.h"

#include "kernels/checks.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

void squared_norm(const Tensor& total, const Tensor& x) {
  const int64_t count = x.numel();
  const int64_t tiles = ceil_div(count, kElementTile);
  std::vector<double> sums(static_cast<size_t>(tiles));
  dispatch("squared_norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
    parallel_for(tiles, [&](int64_t tile) {
      const int64_t begin = tile * kElementTile;
      const int64_t end = std::min(count, begin + kElementTile);
      const T* values = x.data<T>();
      // There is one sum per lane, so that the loop becomes vectors although the compiler may not reorder sums.
      constexpr int64_t kSums = 16;
      std::array<double, kSums> lanes{};
      int64_t i = begin;
      for (; i + kSums <= end; i += kSums) {
        for (int64_t lane = 0; lane < kSums; ++lane) {
          const auto value = static_cast<double>(values[i + lane]);
          lanes[static_cast<size_t>(lane)] += value * value;
        }
      }
      double sum = 0;
      for (; i < end; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
      for (const double lane : lanes) sum += lane;
      sums[static_cast<size_t>(tile)] = sum;
    });
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  total.data<double>()[0] += sum;
}

void step_outcome(const Tensor& outcome, const Tensor& loss_sum, const Tensor& squared_norm,
                  const ops::StepOutcome& o) {
  check_step_outcome(outcome, loss_sum, squared_norm);
  judge_step(outcome.data<double>(), loss_sum.data<double>()[0], std::sqrt(squared_norm.data<double>()[0]), o);
}

void adamw(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const Tensor& control,
           const ops::AdamW& o) {
  check_adamw(w, m, v, gradient, control);
  if (control.data<double>()[1] == 0) return;
  const double correction1 = 1.0 - std::pow(o.beta1, static_cast<double>(o.step));
  const double correction2 = 1.0 - std::pow(o.beta2, static_cast<double>(o.step));
  dispatch("adamw", w.dtype(), [&](auto type) {
    using T = decltype(type);
    T* weight = w.data<T>();
    T* first = m.data<T>();
    T* second = v.data<T>();
    const T* grad = gradient.data<T>();
    const T b1 = static_cast<T>(o.beta1);
    const T b2 = static_cast<T>(o.beta2);
    const T a1 = static_cast<T>(1.0 - o.beta1);
    const T a2 = static_cast<T>(1.0 - o.beta2);
    const T factor = static_cast<T>(control.data<double>()[0]);
    const T rate = static_cast<T>(o.learning_rate / correction1);
    const T root = static_cast<T>(1.0 / std::sqrt(correction2));
    const T eps = static_cast<T>(o.eps);
    const T keep = static_cast<T>(1.0 - o.decay);
    for_elements(w.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T g = grad[i] * factor;
        first[i] = b1 * first[i] + a1 * g;
        second[i] = b2 * second[i] + a2 * g * g;
        weight[i] = keep * weight[i] - rate * first[i] / (std::sqrt(second[i]) * root + eps);
      }
    });
  });
}

}  // namespace

void bind_optimizer() {
  ops::squared_norm.bind(DeviceKind::cpu, squared_norm);
  ops::step_outcome.bind(DeviceKind::cpu, step_outcome);
  ops::adamw.bind(DeviceKind::cpu, adamw);
}

}  // namespace quire::cpu
