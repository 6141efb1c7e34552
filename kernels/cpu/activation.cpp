#include "kernels/cpu/activation.h"

#include <cmath>
#include <numbers>

#include "kernels/checks.h"
#include "kernels/cpu/lanes.h"

namespace quire::cpu {

namespace {

// gelu(x) = x/2 (1 + tanh(c (x + 0.044715 x^3))), c = sqrt(2/pi)
constexpr double kGeluC = 0.7978845608028654;
constexpr double kGeluA = 0.044715;

// The normal distribution, without cancellation far below zero.
template <typename T>
T normal_distribution(T x) {
  return T(0.5) * std::erfc(-x * T(std::numbers::sqrt2 / 2));
}

}  // namespace

void activation(const Tensor& out, const Tensor& in, ops::Activation kind) {
  require_alike("activation", {&out, &in});
  dispatch_stored("activation", out.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      ArrayView<W> y(widened_result(out.data<T>() + begin, count, 1), count);
      const ConstArrayView<W> x(widened(in.data<T>() + begin, count, 2), count);
      if (kind == ops::Activation::relu) {
        y = x.max(W{0});
      } else if (kind == ops::Activation::silu) {
        by_lanes(
            y.data(), count, [](const auto& a) { return a / (W{1} + (-a).exp()); }, x.data());
      } else if (kind == ops::Activation::gelu_erf) {
        y = x * x.unaryExpr([](W value) { return normal_distribution(value); });
      } else {
        by_lanes(
            y.data(), count,
            [](const auto& a) { return W(0.5) * a * (W{1} + (W(kGeluC) * (a + W(kGeluA) * a.cube())).tanh()); },
            x.data());
      }
      store_narrow(out.data<T>() + begin, y.data(), count);
    });
  });
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation kind) {
  require_alike("activation_backward", {&dx, &dy, &x});
  dispatch_stored("activation_backward", dx.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_elements(dx.numel(), [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      ArrayView<W> out(widened_result(dx.data<T>() + begin, count, 1), count);
      const ConstArrayView<W> grad(widened(dy.data<T>() + begin, count, 2), count);
      const ConstArrayView<W> in(widened(x.data<T>() + begin, count, 3), count);
      ArrayView<W> part(scratch<W>(0, count), count);
      if (kind == ops::Activation::relu) {
        out = (in > W{0}).select(grad, W{0});
      } else if (kind == ops::Activation::silu) {
        by_lanes(
            part.data(), count, [](const auto& a) { return W{1} / (W{1} + (-a).exp()); }, in.data());  // sigmoid
        out = grad * part * (W{1} + in * (W{1} - part));
      } else if (kind == ops::Activation::gelu_erf) {
        const W peak(0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
        by_lanes(
            part.data(), count, [&](const auto& a) { return peak * (W(-0.5) * a.square()).exp(); },
            in.data());  // its density
        out = grad * (in.unaryExpr([](W value) { return normal_distribution(value); }) + in * part);
      } else {
        by_lanes(
            part.data(), count, [](const auto& a) { return (W(kGeluC) * (a + W(kGeluA) * a.cube())).tanh(); },
            in.data());
        out = grad * (W(0.5) * (W{1} + part) +
                      W(0.5 * kGeluC) * in * (W{1} - part.square()) * (W{1} + W(3 * kGeluA) * in.square()));
      }
      store_narrow(dx.data<T>() + begin, out.data(), count);
    });
  });
}

namespace {

void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) {
  require_alike("swiglu", {&out, &gate, &up});
  dispatch("swiglu", out.dtype(), [&](auto type) {
    using T = decltype(type);
    for_elements(out.numel(), [&](int64_t begin, int64_t end) {
      by_lanes(
          out.data<T>() + begin, end - begin, [](const auto& g, const auto& u) { return g * u / (T{1} + (-g).exp()); },
          gate.data<T>() + begin, up.data<T>() + begin);
    });
  });
}

void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate, const Tensor& up) {
  require_alike("swiglu_backward", {&dgate, &dup, &dout, &gate, &up});
  dispatch("swiglu_backward", dgate.dtype(), [&](auto type) {
    using T = decltype(type);
    for_elements(dgate.numel(), [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      ArrayView<T> dg(dgate.data<T>() + begin, count);
      ArrayView<T> du(dup.data<T>() + begin, count);
      const ConstArrayView<T> dy(dout.data<T>() + begin, count);
      const ConstArrayView<T> g(gate.data<T>() + begin, count);
      const ConstArrayView<T> u(up.data<T>() + begin, count);
      ArrayView<T> sigmoid(scratch<T>(0, count), count);
      by_lanes(
          sigmoid.data(), count, [](const auto& a) { return T{1} / (T{1} + (-a).exp()); }, g.data());
      dg = dy * u * sigmoid * (T{1} + g * (T{1} - sigmoid));
      du = dy * g * sigmoid;
    });
  });
}

}  // namespace

void bind_activation() {
  ops::activation.bind(DeviceKind::cpu, activation);
  ops::activation_backward.bind(DeviceKind::cpu, activation_backward);
  ops::swiglu.bind(DeviceKind::cpu, swiglu);
  ops::swiglu_backward.bind(DeviceKind::cpu, swiglu_backward);
}

}  // namespace quire::cpu
