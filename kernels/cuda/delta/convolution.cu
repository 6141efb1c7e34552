// The short convolution: a thread for each token and channel, and for the gradient of the weights one for each channel.
// It is the simplest kernel that is right, and its speed on a GPU is unknown.
#include "kernels/convolution.h"

#include "kernels/convolution_sizes.h"
#include "kernels/cuda/runtime.h"

namespace quire::cuda {

namespace {

constexpr int kTokensOfBlock = 64;

template <typename T>
struct Convolution {
  using W = Wide<T>;
  const T *x, *weight;
  const W *bias, *before;
  const int32_t* segments;
  int64_t channels;
  int taps, segment_count;

  Convolution(const ops::ConvolutionInputs& in, const ConvolutionSizes& s)
      : x(in.x.data<T>()),
        weight(in.weight.data<T>()),
        bias(in.bias.defined() ? in.bias.data<W>() : nullptr),
        before(in.before.data<W>()),
        segments(in.segments.data<int32_t>()),
        channels(s.channels),
        taps(static_cast<int>(s.taps)),
        segment_count(static_cast<int>(s.segments)) {}

  __device__ int64_t at(int segment, int64_t t, int64_t channel) const {
    return (segments[2 * segment] + t) * channels + channel;
  }
  __device__ W input(int segment, int64_t t, int64_t channel) const {
    return t >= 0 ? wide(x[at(segment, t, channel)])
                  : before[((segment + 1) * static_cast<int64_t>(taps - 1) + t) * channels + channel];
  }
  __device__ W tap(int i, int64_t channel) const { return wide(weight[channel * taps + i]); }
  __device__ W sum(int segment, int64_t t, int64_t channel) const {
    W total = bias == nullptr ? W{0} : bias[channel];
    for (int i = 0; i < taps; ++i) total += tap(i, channel) * input(segment, t - taps + 1 + i, channel);
    return total;
  }
};

// Without dy, to = y; with it, the gradient of the sums. blockIdx.y is the segment.
template <typename T>
__global__ void convolution_kernel(T* to, const T* dy, Convolution<T> c) {
  using W = Wide<T>;
  const int segment = static_cast<int>(blockIdx.y);
  const int64_t count = c.segments[2 * segment + 1] * c.channels;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t t = i / c.channels, channel = i % c.channels, at = c.at(segment, t, channel);
    const W x = c.sum(segment, t, channel), share = W{1} / (W{1} + std::exp(-x));
    to[at] = narrow<T>(dy == nullptr ? x * share : wide(dy[at]) * share * (W{1} + x * (W{1} - share)));
  }
}

// dx holds the gradient of the sums and receives that of x, in the order of tokens.
template <typename T>
__global__ void convolution_backward_kernel(T* dx, Wide<T>* dweight, Wide<T>* dbias, Convolution<T> c) {
  using W = Wide<T>;
  for (int64_t channel = first_element(); channel < c.channels; channel += element_stride()) {
    W of_bias = 0;
    for (int i = 0; i < c.taps; ++i) dweight[channel * c.taps + i] = 0;
    for (int segment = 0; segment < c.segment_count; ++segment) {
      const int64_t count = c.segments[2 * segment + 1];
      for (int64_t t = 0; t < count; ++t) {
        const W own = wide(dx[c.at(segment, t, channel)]);
        of_bias += own;
        for (int i = 0; i < c.taps; ++i) {
          dweight[channel * c.taps + i] += own * c.input(segment, t - c.taps + 1 + i, channel);
        }
        W total = 0;
        for (int later = 0; later < c.taps && t + later < count; ++later) {
          total += wide(dx[c.at(segment, t + later, channel)]) * c.tap(c.taps - 1 - later, channel);
        }
        dx[c.at(segment, t, channel)] = narrow<T>(total);
      }
    }
    if (dbias != nullptr) dbias[channel] = of_bias;
  }
}

dim3 blocks_of(const ConvolutionSizes& s) {
  return dim3(blocks_for(kTokensOfBlock * s.channels).x, static_cast<unsigned>(s.segments));
}

void short_convolution(const Tensor& y, const ops::ConvolutionInputs& in) {
  const ConvolutionSizes s(in);
  y.zero();
  dispatch(in.x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(convolution_kernel<T>, blocks_of(s), kBlock, 0, y.data<T>(), static_cast<const T*>(nullptr),
           Convolution<T>(in, s));
  });
}

void short_convolution_backward(const ops::ConvolutionGradients& to, const Tensor& dy,
                                const ops::ConvolutionInputs& in) {
  const ConvolutionSizes s(in);
  to.dx.zero();
  dispatch(in.x.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const Convolution<T> c(in, s);
    launch(convolution_kernel<T>, blocks_of(s), kBlock, 0, to.dx.data<T>(), static_cast<const T*>(dy.data<T>()), c);
    launch(convolution_backward_kernel<T>, blocks_for(s.channels), kBlock, 0, to.dx.data<T>(), to.dweight.data<W>(),
           to.dbias.defined() ? to.dbias.data<W>() : nullptr, c);
  });
}

}  // namespace

void bind_convolution() {
  ops::short_convolution.bind(DeviceKind::cuda, short_convolution);
  ops::short_convolution_backward.bind(DeviceKind::cuda, short_convolution_backward);
}

}  // namespace quire::cuda
