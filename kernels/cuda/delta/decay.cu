// The log decay of the gated delta rule: a thread for each value, and for the sums of its gradients a block for each
// head. It is the simplest kernel that is right, and its speed on a GPU is unknown.
#include "kernels/cuda/runtime.h"
#include "kernels/delta.h"
#include "kernels/delta_sizes.h"

namespace quire::cuda {

namespace {

constexpr int kThreadsOfHead = 128;

template <typename T>
struct Decay {
  using W = Wide<T>;
  const T* a;
  const W *log_rate, *bias;
  W bound;
  int64_t cells, heads, features;

  Decay(const ops::DeltaDecayInputs& in, const DecaySizes& s)
      : a(in.a.data<T>()),
        log_rate(in.log_rate.defined() ? in.log_rate.data<W>() : nullptr),
        bias(in.bias.data<W>()),
        bound(static_cast<W>(in.bound)),
        cells(s.cells),
        heads(s.heads),
        features(s.features) {}

  __device__ W rate(int64_t head) const { return log_rate == nullptr ? W{1} : std::exp(log_rate[head]); }
  __device__ W input(int64_t cell, int64_t column) const {
    return wide(a[cell * heads * features + column]) + bias[column];
  }
  __device__ static W softplus(W x) { return (x > 0 ? x : W{0}) + std::log1p(std::exp(x > 0 ? -x : x)); }
  __device__ static W sigmoid(W x) { return W{1} / (W{1} + std::exp(-x)); }
};

template <typename T>
__global__ void decay_kernel(Wide<T>* g, Decay<T> d) {
  using W = Wide<T>;
  const int64_t columns = d.heads * d.features;
  for (int64_t i = first_element(); i < d.cells * columns; i += element_stride()) {
    const W x = d.input(i / columns, i % columns), rate = d.rate(i % columns / d.features);
    g[i] = d.bound == 0 ? -rate * d.softplus(x) : d.bound * d.sigmoid(rate * x);
  }
}

template <typename T>
__global__ void decay_backward_kernel(T* da, Wide<T>* dlog_rate, Wide<T>* dbias, const Wide<T>* dg, const Wide<T>* g,
                                      Decay<T> d) {
  using W = Wide<T>;
  __shared__ W by_thread[kThreadsOfHead];
  const int64_t head = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const W rate = d.rate(head);
  W of_rate = 0;
  for (int64_t feature = thread; feature < d.features; feature += kThreadsOfHead) {
    const int64_t column = head * d.features + feature;
    W of_bias = 0;
    for (int64_t cell = 0; cell < d.cells; ++cell) {
      const int64_t at = cell * d.heads * d.features + column;
      const W x = d.input(cell, column);
      W term;
      if (d.bound == 0) {
        of_rate += dg[at] * g[at];
        term = -dg[at] * rate * d.sigmoid(x);
      } else {
        term = dg[at] * g[at] * (W{1} - g[at] / d.bound) * rate;
        of_rate += term * x;
      }
      da[at] = narrow<T>(term);
      of_bias += term;
    }
    dbias[column] = of_bias;
  }
  by_thread[thread] = of_rate;
  __syncthreads();
  if (thread != 0 || dlog_rate == nullptr) return;
  W total = 0;
  for (int i = 0; i < kThreadsOfHead; ++i) total += by_thread[i];
  dlog_rate[head] = total;
}

void delta_decay(const Tensor& g, const ops::DeltaDecayInputs& in) {
  const DecaySizes s(in);
  dispatch(in.a.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(decay_kernel<T>, blocks_for(g.numel()), kBlock, 0, g.data<Wide<T>>(), Decay<T>(in, s));
  });
}

void delta_decay_backward(const ops::DeltaDecayGradients& to, const Tensor& dg, const Tensor& g,
                          const ops::DeltaDecayInputs& in) {
  const DecaySizes s(in);
  dispatch(in.a.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    launch(decay_backward_kernel<T>, dim3(static_cast<unsigned>(s.heads)), kThreadsOfHead, 0, to.da.data<T>(),
           to.dlog_rate.defined() ? to.dlog_rate.data<W>() : nullptr, to.dbias.data<W>(), dg.data<W>(), g.data<W>(),
           Decay<T>(in, s));
  });
}

}  // namespace

void bind_delta_decay() {
  ops::delta_decay.bind(DeviceKind::cuda, delta_decay);
  ops::delta_decay_backward.bind(DeviceKind::cuda, delta_decay_backward);
}

}  // namespace quire::cuda
