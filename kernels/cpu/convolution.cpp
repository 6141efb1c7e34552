#include "kernels/convolution.h"

#include "kernels/convolution_sizes.h"
#include "kernels/cpu/lanes.h"

namespace quire::cpu {

namespace {

// Some consecutive tokens of a segment, from token `first` of it on.
struct Piece {
  int64_t segment, first, count;
};

template <typename T>
struct Convolution {
  ConvolutionSizes s;
  const T *x, *bias, *before;
  const int32_t* segments;
  Tensor by_tap;  // weight as [W, C]

  explicit Convolution(const ops::ConvolutionInputs& in)
      : s(in),
        x(in.x.data<T>()),
        bias(in.bias.defined() ? in.bias.data<T>() : nullptr),
        before(in.before.data<T>()),
        segments(in.segments.data<int32_t>()),
        by_tap(Tensor::empty({s.taps, s.channels}, in.weight.dtype())) {
    MatrixView<T>(by_tap.data<T>(), s.taps, s.channels, Eigen::OuterStride<>(s.channels)) =
        ConstMatrixView<T>(in.weight.data<T>(), s.channels, s.taps, Eigen::OuterStride<>(s.taps)).transpose();
  }

  int64_t cell(int64_t segment, int64_t t) const { return segments[2 * segment] + t; }
  // Returns the channels of token t of a segment; negative ones came before it.
  const T* input(int64_t segment, int64_t t) const {
    return t >= 0 ? x + cell(segment, t) * s.channels : before + ((segment + 1) * (s.taps - 1) + t) * s.channels;
  }
  const T* weights(int64_t tap) const { return by_tap.data<T>() + tap * s.channels; }

  // to [C] = what silu is applied to.
  void sum(T* to, int64_t segment, int64_t t) const {
    ArrayView<T> total(to, s.channels);
    if (bias != nullptr) {
      total = ConstArrayView<T>(bias, s.channels);
    } else {
      total.setZero();
    }
    for (int64_t i = 0; i < s.taps; ++i) {
      total +=
          ConstArrayView<T>(weights(i), s.channels) * ConstArrayView<T>(input(segment, t - s.taps + 1 + i), s.channels);
    }
  }

  std::vector<Piece> pieces() const {
    constexpr int64_t kTokens = 64;
    std::vector<Piece> all;
    for (int64_t segment = 0; segment < s.segments; ++segment) {
      const int64_t count = segments[2 * segment + 1];
      for (int64_t first = 0; first < count; first += kTokens) {
        all.push_back({segment, first, std::min(kTokens, count - first)});
      }
    }
    return all;
  }
  // Calls body(segment, t) for every token.
  template <typename Body>
  void for_tokens(const Body& body) const {
    const std::vector<Piece> all = pieces();
    parallel_for(static_cast<int64_t>(all.size()), [&](int64_t n) {
      const Piece& piece = all[static_cast<size_t>(n)];
      for (int64_t t = piece.first; t < piece.first + piece.count; ++t) body(piece.segment, t);
    });
  }
};

void short_convolution(const Tensor& y, const ops::ConvolutionInputs& in) {
  dispatch("short_convolution", in.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Convolution<T> c(in);
    y.zero();
    c.for_tokens([&](int64_t segment, int64_t t) {
      T* const to = y.data<T>() + c.cell(segment, t) * c.s.channels;
      c.sum(to, segment, t);
      by_lanes(
          to, c.s.channels, [](const auto& sum) { return sum / (T{1} + (-sum).exp()); }, to);
    });
  });
}

// Channels of which the gradients of the weights are summed together.
constexpr int64_t kChannels = 64;

// dx holds the gradient of the sums and receives that of x, for some channels; kWidth is their number when the compiler
// knows it. In the order of the tokens of a segment, each is read before it is replaced: a token's gradient comes from
// its own sum and those after it.
template <int kWidth, typename T>
void convolve_back(const ops::ConvolutionGradients& to, const Convolution<T>& c, int64_t first, int64_t width) {
  using Line = Eigen::Map<Eigen::Array<T, kWidth, 1>>;
  using ConstLine = Eigen::Map<const Eigen::Array<T, kWidth, 1>>;
  const int64_t channels = c.s.channels, taps = c.s.taps;
  T* const dx = to.dx.data<T>() + first;
  T* const sums = scratch<T>(0, (taps + 1) * kChannels);  // of the weights of each tap, and of the bias
  std::fill_n(sums, (taps + 1) * kChannels, T{0});
  for (int64_t segment = 0; segment < c.s.segments; ++segment) {
    const int64_t count = c.segments[2 * segment + 1];
    for (int64_t t = 0; t < count; ++t) {
      Line own(dx + c.cell(segment, t) * channels, width);
      for (int64_t i = 0; i < taps; ++i) {
        Line(sums + i * kChannels, width) += own * ConstLine(c.input(segment, t - taps + 1 + i) + first, width);
      }
      Line(sums + taps * kChannels, width) += own;
      Eigen::Array<T, kWidth, 1, 0, kChannels, 1> total = own * ConstLine(c.weights(taps - 1) + first, width);
      for (int64_t later = 1; later < std::min(taps, count - t); ++later) {
        total += ConstLine(dx + c.cell(segment, t + later) * channels, width) *
                 ConstLine(c.weights(taps - 1 - later) + first, width);
      }
      own = total;
    }
  }
  for (int64_t n = 0; n < width; ++n) {
    for (int64_t i = 0; i < taps; ++i) to.dweight.data<T>()[(first + n) * taps + i] = sums[i * kChannels + n];
    if (to.dbias.defined()) to.dbias.data<T>()[first + n] = sums[taps * kChannels + n];
  }
}

void short_convolution_backward(const ops::ConvolutionGradients& to, const Tensor& dy,
                                const ops::ConvolutionInputs& in) {
  dispatch("short_convolution_backward", in.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const Convolution<T> c(in);
    const int64_t channels = c.s.channels;
    T* const dx = to.dx.data<T>();
    to.dx.zero();
    c.for_tokens([&](int64_t segment, int64_t t) {
      const int64_t at = c.cell(segment, t) * channels;
      T* const sum = scratch<T>(0, channels);
      c.sum(sum, segment, t);
      const ConstArrayView<T> x(sum, channels), dout(dy.data<T>() + at, channels);
      ArrayView<T> share(scratch<T>(1, channels), channels);
      by_lanes(
          share.data(), channels, [](const auto& a) { return (T{1} + (-a).exp()).inverse(); }, x.data());
      ArrayView<T>(dx + at, channels) = dout * share * (T{1} + x * (T{1} - share));
    });
    parallel_for(ceil_div(channels, kChannels), [&](int64_t block) {
      const int64_t first = block * kChannels, width = std::min(kChannels, channels - first);
      if (width == kChannels) {
        convolve_back<kChannels>(to, c, first, width);
      } else {
        convolve_back<Eigen::Dynamic>(to, c, first, width);
      }
    });
  });
}

}  // namespace

void bind_convolution() {
  ops::short_convolution.bind(DeviceKind::cpu, short_convolution);
  ops::short_convolution_backward.bind(DeviceKind::cpu, short_convolution_backward);
}

}  // namespace quire::cpu
