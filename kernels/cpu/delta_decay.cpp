#include "kernels/cpu/lanes.h"
#include "kernels/delta.h"
#include "kernels/delta_sizes.h"

namespace quire::cpu {

namespace {

// Columns are heads times features; some of them are computed together.
constexpr int64_t kColumns = 64;

template <typename T>
struct Decay {
  DecaySizes s;
  const T *a, *bias;
  T bound;
  std::vector<T> rate;  // of each column

  explicit Decay(const ops::DeltaDecayInputs& in)
      : s(in), a(in.a.data<T>()), bias(in.bias.data<T>()), bound(static_cast<T>(in.bound)) {
    for (int64_t n = 0; n < columns(); ++n) {
      rate.push_back(in.log_rate.defined() ? std::exp(in.log_rate.data<T>()[n / s.features]) : T{1});
    }
  }
  int64_t columns() const { return s.heads * s.features; }
};

// The sign of x decides which exponential cannot overflow.
template <typename Array>
auto softplus(const Array& x) {
  using T = typename Array::Scalar;
  return x.max(T{0}) + (-x.abs()).exp().log1p();
}

void delta_decay(const Tensor& g, const ops::DeltaDecayInputs& in) {
  dispatch("delta_decay", in.a.dtype(), [&](auto type) {
    using T = decltype(type);
    const Decay<T> decay(in);
    const int64_t columns = decay.columns();
    const ConstArrayView<T> rate(decay.rate.data(), columns), bias(decay.bias, columns);
    for_rows(decay.s.cells, columns, [&](int64_t begin, int64_t end) {
      ArrayView<T> x(scratch<T>(0, columns), columns);
      for (int64_t n = begin; n < end; ++n) {
        x = ConstArrayView<T>(decay.a + n * columns, columns) + bias;
        if (decay.bound == 0) {
          x = -rate * softplus(x);
        } else {
          x = decay.bound / (T{1} + (-(rate * x)).exp());
        }
        // Computed where lines always lie, so that the bits are the same for every cell.
        std::copy_n(x.data(), columns, g.data<T>() + n * columns);
      }
    });
  });
}

void delta_decay_backward(const ops::DeltaDecayGradients& to, const Tensor& dg, const Tensor& g,
                          const ops::DeltaDecayInputs& in) {
  dispatch("delta_decay_backward", in.a.dtype(), [&](auto type) {
    using T = decltype(type);
    const Decay<T> decay(in);
    const int64_t columns = decay.columns();
    std::vector<T> by_rate(static_cast<size_t>(columns), T{0});
    to.dbias.zero();
    parallel_for(ceil_div(columns, kColumns), [&](int64_t block) {
      const int64_t first = block * kColumns, width = std::min(kColumns, columns - first);
      const ConstArrayView<T> rate(decay.rate.data() + first, width), bias(decay.bias + first, width);
      ArrayView<T> of_rate(by_rate.data() + first, width), dbias(to.dbias.data<T>() + first, width);
      ArrayView<T> x(scratch<T>(0, width), width);
      for (int64_t n = 0; n < decay.s.cells; ++n) {
        const int64_t at = n * columns + first;
        const ConstArrayView<T> dout(dg.data<T>() + at, width), out(g.data<T>() + at, width);
        ArrayView<T> da(to.da.data<T>() + at, width);
        x = ConstArrayView<T>(decay.a + at, width) + bias;
        if (decay.bound == 0) {
          of_rate += dout * out;
          x = T{1} + (-x).exp();
          da = -dout * rate / x;
        } else {
          da = dout * out * (T{1} - out / decay.bound) * rate;
          of_rate += da * x;
        }
        dbias += da;
      }
    });
    if (!to.dlog_rate.defined()) return;
    for (int64_t head = 0; head < decay.s.heads; ++head) {
      to.dlog_rate.data<T>()[head] = sum_of_line(by_rate.data() + head * decay.s.features, decay.s.features);
    }
  });
}

}  // namespace

void bind_delta_decay() {
  ops::delta_decay.bind(DeviceKind::cpu, delta_decay);
  ops::delta_decay_backward.bind(DeviceKind::cpu, delta_decay_backward);
}

}  // namespace quire::cpu
