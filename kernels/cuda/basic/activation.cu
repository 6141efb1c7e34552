#include "kernels/checks.h"
#include "kernels/cuda/basic/map.h"
#include "kernels/cuda/basic/swiglu.h"
#include "kernels/elementwise.h"

namespace quire::cuda {

namespace {

template <typename T>
struct Relu {
  // A comparison keeps a NaN, where max() would not.
  __device__ void operator()(Wide<T>* y, const Wide<T>* x) const { y[0] = x[0] < 0 ? 0 : x[0]; }
};

template <typename T>
struct ReluBackward {
  __device__ void operator()(Wide<T>* dx, const Wide<T>* in) const { dx[0] = in[1] > 0 ? in[0] : 0; }
};

// gelu(x) = x/2 (1 + tanh(c (x + a x^3))), c = sqrt(2/pi)
constexpr double kGeluC = 0.7978845608028654;
constexpr double kGeluA = 0.044715;

template <typename T>
struct Gelu {
  using W = Wide<T>;
  __device__ void operator()(W* y, const W* in) const {
    const W x = in[0];
    y[0] = W(0.5) * x * (W{1} + std::tanh(W(kGeluC) * (x + W(kGeluA) * x * x * x)));
  }
};

template <typename T>
struct GeluBackward {
  using W = Wide<T>;
  __device__ void operator()(W* dx, const W* in) const {
    const W x = in[1];
    const W t = std::tanh(W(kGeluC) * (x + W(kGeluA) * x * x * x));
    const W inner = W(kGeluC) * (W{1} + W(3 * kGeluA) * x * x);
    dx[0] = in[0] * (W(0.5) * (W{1} + t) + W(0.5) * x * (W{1} - t * t) * inner);
  }
};

template <typename T>
struct Silu {
  using W = Wide<T>;
  __device__ void operator()(W* y, const W* in) const { y[0] = in[0] / (W{1} + std::exp(-in[0])); }
};

template <typename T>
struct SiluBackward {
  using W = Wide<T>;
  __device__ void operator()(W* dx, const W* in) const {
    const W sigmoid = W{1} / (W{1} + std::exp(-in[1]));
    dx[0] = in[0] * sigmoid * (W{1} + in[1] * (W{1} - sigmoid));
  }
};

constexpr double kRootHalf = 0.7071067811865476;
constexpr double kDensityAtZero = 0.3989422804014327;  // 1 / sqrt(2 pi)

// x times the normal distribution.
template <typename T>
struct GeluErf {
  using W = Wide<T>;
  __device__ void operator()(W* y, const W* in) const { y[0] = W(0.5) * in[0] * std::erfc(-in[0] * W(kRootHalf)); }
};

template <typename T>
struct GeluErfBackward {
  using W = Wide<T>;
  __device__ void operator()(W* dx, const W* in) const {
    const W x = in[1];
    const W density = W(kDensityAtZero) * std::exp(W(-0.5) * x * x);
    dx[0] = in[0] * (W(0.5) * std::erfc(-x * W(kRootHalf)) + x * density);
  }
};

void activation(const Tensor& out, const Tensor& in, ops::Activation kind) {
  require_alike("activation", {&out, &in});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    if (kind == ops::Activation::relu) {
      map<T>(Relu<T>{}, {&out}, {&in});
    } else if (kind == ops::Activation::silu) {
      map<T>(Silu<T>{}, {&out}, {&in});
    } else if (kind == ops::Activation::gelu_erf) {
      map<T>(GeluErf<T>{}, {&out}, {&in});
    } else {
      map<T>(Gelu<T>{}, {&out}, {&in});
    }
  });
}

void activation_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, ops::Activation kind) {
  require_alike("activation_backward", {&dx, &dy, &x});
  dispatch(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    if (kind == ops::Activation::relu) {
      map<T>(ReluBackward<T>{}, {&dx}, {&dy, &x});
    } else if (kind == ops::Activation::silu) {
      map<T>(SiluBackward<T>{}, {&dx}, {&dy, &x});
    } else if (kind == ops::Activation::gelu_erf) {
      map<T>(GeluErfBackward<T>{}, {&dx}, {&dy, &x});
    } else {
      map<T>(GeluBackward<T>{}, {&dx}, {&dy, &x});
    }
  });
}

void swiglu(const Tensor& out, const Tensor& gate, const Tensor& up) {
  require_alike("swiglu", {&out, &gate, &up});
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(Swiglu<T>{}, {&out}, {&gate, &up});
  });
}

void swiglu_backward(const Tensor& dgate, const Tensor& dup, const Tensor& dout, const Tensor& gate, const Tensor& up) {
  require_alike("swiglu_backward", {&dgate, &dup, &dout, &gate, &up});
  dispatch(dgate.dtype(), [&](auto type) {
    using T = decltype(type);
    map<T>(SwigluBackward<T>{}, {&dgate, &dup}, {&dout, &gate, &up});
  });
}

}  // namespace

void bind_activation() {
  ops::activation.bind(DeviceKind::cuda, activation);
  ops::activation_backward.bind(DeviceKind::cuda, activation_backward);
  ops::swiglu.bind(DeviceKind::cuda, swiglu);
  ops::swiglu_backward.bind(DeviceKind::cuda, swiglu_backward);
}

}  // namespace quire::cuda
