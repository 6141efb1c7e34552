#include "kernels/axis.h"

#include <limits>

#include "kernels/cpu/lanes.h"
#include "kernels/strided.h"
#include "kernels/vocabulary_checks.h"

namespace quire::cpu {

namespace {

// The number of neighbouring elements that a thread adds up at once.
constexpr int64_t kColumns = 512;

void sum_axis(const Tensor& out, const Tensor& in, int axis, double factor) {
  const AxisSizes sizes = check_sum_axis(out, in, axis);
  if (out.numel() == 0) return;
  dispatch_stored("sum_axis", in.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    const W times = static_cast<W>(factor);
    if (sizes.inner == 1) {
      for_rows(sizes.outer, sizes.size, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const W* const line = widened(in.data<T>() + row * sizes.size, sizes.size, 0);
          out.data<T>()[row] = narrow<T>(times * sum_of_line(line, sizes.size));
        }
      });
      return;
    }
    const int64_t pieces = ceil_div(sizes.inner, kColumns);
    parallel_for(sizes.outer * pieces, [&](int64_t index) {
      const int64_t first = index % pieces * kColumns;
      const int64_t count = std::min(kColumns, sizes.inner - first);
      const T* const from = in.data<T>() + index / pieces * sizes.size * sizes.inner + first;
      ArrayView<W> sum(scratch<W>(1, count), count);
      sum.setZero();
      for (int64_t n = 0; n < sizes.size; ++n) {
        sum += ConstArrayView<W>(widened(from + n * sizes.inner, count, 0), count);
      }
      T* const to = out.data<T>() + index / pieces * sizes.inner + first;
      for (int64_t i = 0; i < count; ++i) to[i] = narrow<T>(times * sum[i]);
    });
  });
}

void cumulative_sum(const Tensor& out, const Tensor& in, int axis, bool reverse) {
  const AxisSizes sizes = check_cumulative_sum(out, in, axis);
  if (out.numel() == 0) return;
  const int64_t pieces = ceil_div(sizes.inner, kColumns);
  dispatch_stored("cumulative_sum", in.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    parallel_for(sizes.outer * pieces, [&](int64_t index) {
      const int64_t first = index % pieces * kColumns;
      const int64_t count = std::min(kColumns, sizes.inner - first);
      const int64_t begin = index / pieces * sizes.size * sizes.inner + first;
      W* const sum = scratch<W>(0, count);
      std::fill_n(sum, count, W{0});
      for (int64_t n = 0; n < sizes.size; ++n) {
        const int64_t at = begin + (reverse ? sizes.size - 1 - n : n) * sizes.inner;
        for (int64_t i = 0; i < count; ++i) {
          sum[i] += wide(in.data<T>()[at + i]);
          out.data<T>()[at + i] = narrow<T>(sum[i]);
        }
      }
    });
  });
}

// Writes exp(x - lse) with write, else leaves anything in y; returns lse.
template <typename W>
W softmax_line(W* y, const W* x, int64_t count, bool write) {
  constexpr W kNone = -std::numeric_limits<W>::infinity();
  const W max_value = count == 0 ? kNone : ConstArrayView<W>(x, count).template maxCoeff<Eigen::PropagateNaN>();
  ArrayView<W> to(y, count);
  if (max_value == kNone) {
    to.setZero();
    return max_value;
  }
  to = ConstArrayView<W>(x, count) - max_value;
  exponentials(y, y, count);
  const W sum = sum_of_line(y, count);
  if (write) to /= sum;
  return max_value + std::log(sum);
}

// As softmax_line for the elements that the mask keeps, with 0 for the others. Its bits depend on the kept elements
// alone, however many others lie between them.
template <typename W>
W softmax_row(W* y, const W* x, const uint8_t* mask, int64_t mask_stride, int64_t width, bool write) {
  const KeptRun run = kept_run(mask, mask_stride, width);
  if (run.whole()) {
    if (write) std::fill_n(y, run.first, W{0}), std::fill(y + run.last, y + width, W{0});
    return softmax_line(y + run.first, x + run.first, run.count, write);
  }
  W* const packed = scratch<W>(2, run.count);
  int64_t count = 0;
  for (int64_t i = run.first; i < run.last; ++i) {
    if (mask[i * mask_stride] != 0) packed[count++] = x[i];
  }
  const W lse = softmax_line(packed, packed, count, write);
  count = 0;
  for (int64_t i = 0; write && i < width; ++i) y[i] = mask[i * mask_stride] != 0 ? packed[count++] : W{0};
  return lse;
}

void softmax(const Tensor& out, const Tensor& lse, const Tensor& in, const Tensor& mask) {
  check_softmax(out, lse, in, mask);
  const int64_t width = in.dim(-1);
  if (width == 0) {
    dispatch_stored("softmax", in.dtype(), [&](auto type) {
      using W = Wide<decltype(type)>;
      if (lse.defined()) std::fill_n(lse.data<W>(), lse.numel(), -std::numeric_limits<W>::infinity());
    });
    return;
  }
  const Strided<2> walk({&in, &mask});
  const int64_t mask_stride = mask.defined() ? mask.stride(-1) : 0;
  dispatch_stored("softmax", in.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_rows(in.numel() / width, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        int64_t at[2];
        walk.find(row * width, at);
        W* const y = out.defined() ? widened_result(out.data<T>() + at[0], width, 1) : scratch<W>(1, width);
        const uint8_t* const kept = mask.defined() ? mask.data<uint8_t>() + at[1] : nullptr;
        const W sum = softmax_row(y, widened(in.data<T>() + at[0], width, 0), kept, mask_stride, width, out.defined());
        if (out.defined()) store_narrow(out.data<T>() + at[0], y, width);
        if (lse.defined()) lse.data<W>()[row] = sum;
      }
    });
  });
}

void softmax_backward(const Tensor& din, const Tensor& dout, const Tensor& dlse, const Tensor& out) {
  check_softmax_backward(din, dout, dlse, out);
  const int64_t width = out.dim(-1);
  if (width == 0) return;
  dispatch_stored("softmax_backward", out.dtype(), [&](auto type) {
    using T = decltype(type);
    using W = Wide<T>;
    for_rows(out.numel() / width, width, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * width;
        const ConstArrayView<W> y(widened(out.data<T>() + at, width, 0), width);
        ArrayView<W> dx(widened_result(din.data<T>() + at, width, 2), width);
        const W of_sum = dlse.defined() ? dlse.data<W>()[row] : W{0};
        if (dout.defined()) {
          const ConstArrayView<W> g(widened(dout.data<T>() + at, width, 1), width);
          const W mean = (g * y).sum() - of_sum;
          dx = y * (g - mean);
        } else {
          dx = y * of_sum;
        }
        store_narrow(din.data<T>() + at, dx.data(), width);
      }
    });
  });
}

}  // namespace

void bind_axis() {
  ops::sum_axis.bind(DeviceKind::cpu, sum_axis);
  ops::cumulative_sum.bind(DeviceKind::cpu, cumulative_sum);
  ops::softmax.bind(DeviceKind::cpu, softmax);
  ops::softmax_backward.bind(DeviceKind::cpu, softmax_backward);
}

}  // namespace quire::cpu
