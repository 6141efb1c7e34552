// SwiGLU, element by element; formulas in kernels/elementwise.h.
#pragma once

#include "kernels/cuda/runtime.h"

namespace quire::cuda {

// Computes y[0] = silu(gate) * up from gate and up.
template <typename T>
struct Swiglu {
  using W = Wide<T>;
  __device__ void operator()(W* y, const W* in) const { y[0] = in[0] * in[1] / (W{1} + std::exp(-in[0])); }
};

// Computes dgate and dup from dy, gate and up.
template <typename T>
struct SwigluBackward {
  using W = Wide<T>;
  __device__ void operator()(W* out, const W* in) const {
    const W dy = in[0];
    const W gate = in[1];
    const W sigmoid = W{1} / (W{1} + std::exp(-gate));
    out[0] = dy * in[2] * sigmoid * (W{1} + gate * (W{1} - sigmoid));
    out[1] = dy * gate * sigmoid;
  }
};

}  // namespace quire::cuda
