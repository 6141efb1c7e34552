#include "kernels/norm.h"

#include "kernels/checks.h"
#include "kernels/cpu/lanes.h"

namespace quire::cpu {

namespace {

void rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& weight, double eps) {
  check_norm("rms_norm", y, x, weight, rstd);
  const int64_t width = x.dim(-1);
  dispatch("rms_norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const ConstArrayView<T> w(weight.data<T>(), width);
    for_rows(rstd.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const ConstArrayView<T> in(x.data<T>() + m * width, width);
        const T r = T{1} / std::sqrt(in.square().sum() / static_cast<T>(width) + static_cast<T>(eps));
        rstd.data<T>()[m] = r;
        ArrayView<T>(y.data<T>() + m * width, width) = in * r * w;
      }
    });
  });
}

// Sums per-row weight gradients in parts whose number depends only on the shape, and adds the parts in order.
template <typename T, typename Row>
void with_weight_gradients(int64_t rows, int64_t width, std::initializer_list<T*> totals, Row&& row) {
  const int64_t parts = reduction_parts(rows);
  const int64_t kinds = static_cast<int64_t>(totals.size());
  const Tensor partial = Tensor::empty({parts, kinds, width}, dtype_of<T>());
  T* sums = partial.data<T>();
  parallel_for(parts, [&](int64_t part) {
    T* mine = sums + part * kinds * width;
    std::fill(mine, mine + kinds * width, T{0});
    for (int64_t m = rows * part / parts; m < rows * (part + 1) / parts; ++m) row(m, mine);
  });
  int64_t kind = 0;
  for (T* total : totals) {
    for (int64_t part = 0; part < parts; ++part) {
      ArrayView<T>(total, width) += ConstArrayView<T>(sums + (part * kinds + kind) * width, width);
    }
    ++kind;
  }
}

void rms_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, bool accumulate_dx) {
  check_norm_backward("rms_norm_backward", dx, dweight, dy, x, weight, rstd);
  const int64_t width = x.dim(-1);
  dispatch("rms_norm_backward", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const ConstArrayView<T> w(weight.data<T>(), width);
    with_weight_gradients<T>(rstd.numel(), width, {dweight.data<T>()}, [&](int64_t m, T* sums) {
      const ConstArrayView<T> in(x.data<T>() + m * width, width);
      const ConstArrayView<T> grad(dy.data<T>() + m * width, width);
      const T r = rstd.data<T>()[m];
      ArrayView<T> dw(sums, width);
      dw += grad * in * r;
      // dx = r (w dy - x r^2 mean(w dy x))
      const T dot = (grad * w * in).sum() * r * r / static_cast<T>(width);
      ArrayView<T> out(dx.data<T>() + m * width, width);
      if (accumulate_dx) {
        out += r * (grad * w - in * dot);
      } else {
        out = r * (grad * w - in * dot);
      }
    });
  });
}

void layer_norm(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& weight,
                const Tensor& bias, double eps) {
  check_norm("layer_norm", y, x, weight, rstd);
  check_norm("layer_norm", y, x, bias, mean);
  const int64_t width = x.dim(-1);
  dispatch("layer_norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const ConstArrayView<T> w(weight.data<T>(), width);
    const ConstArrayView<T> b(bias.data<T>(), width);
    for_rows(rstd.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const ConstArrayView<T> in(x.data<T>() + m * width, width);
        const T mu = sum_of_line(in.data(), width) / static_cast<T>(width);
        const T r = T{1} / std::sqrt((in - mu).square().mean() + static_cast<T>(eps));
        mean.data<T>()[m] = mu;
        rstd.data<T>()[m] = r;
        ArrayView<T>(y.data<T>() + m * width, width) = (in - mu) * r * w + b;
      }
    });
  });
}

void layer_norm_backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                         const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                         bool accumulate_dx) {
  check_norm_backward("layer_norm_backward", dx, dweight, dy, x, weight, rstd);
  check_norm_backward("layer_norm_backward", dx, dbias, dy, x, weight, mean);
  const int64_t width = x.dim(-1);
  dispatch("layer_norm_backward", x.dtype(), [&](auto type) {
    using T = decltype(type);
    const ConstArrayView<T> w(weight.data<T>(), width);
    with_weight_gradients<T>(rstd.numel(), width, {dweight.data<T>(), dbias.data<T>()}, [&](int64_t m, T* sums) {
      const ConstArrayView<T> in(x.data<T>() + m * width, width);
      const ConstArrayView<T> grad(dy.data<T>() + m * width, width);
      const T mu = mean.data<T>()[m];
      const T r = rstd.data<T>()[m];
      ArrayView<T> dw(sums, width);
      ArrayView<T> db(sums + width, width);
      dw += grad * (in - mu) * r;
      db += grad;
      // dx = r (g - mean(g) - x_hat mean(g x_hat)), g = w dy
      const T average = (grad * w).mean();
      const T dot = (grad * w * (in - mu)).mean() * r * r;
      ArrayView<T> out(dx.data<T>() + m * width, width);
      if (accumulate_dx) {
        out += r * (grad * w - average - (in - mu) * dot);
      } else {
        out = r * (grad * w - average - (in - mu) * dot);
      }
    });
  });
}

void l2_norm(const Tensor& y, const Tensor& rnorm, const Tensor& x, double eps) {
  check_l2_norm("l2_norm", y, x, rnorm);
  const int64_t width = x.dim(-1);
  dispatch("l2_norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(rnorm.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const ConstArrayView<T> in(x.data<T>() + m * width, width);
        const T r = T{1} / std::sqrt(in.square().sum() + static_cast<T>(eps));
        rnorm.data<T>()[m] = r;
        ArrayView<T>(y.data<T>() + m * width, width) = in * r;
      }
    });
  });
}

void l2_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& y, const Tensor& rnorm) {
  check_l2_norm("l2_norm_backward", dx, y, rnorm);
  check_l2_norm("l2_norm_backward", dy, y, rnorm);
  const int64_t width = y.dim(-1);
  dispatch("l2_norm_backward", y.dtype(), [&](auto type) {
    using T = decltype(type);
    for_rows(rnorm.numel(), width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        const ConstArrayView<T> out(y.data<T>() + m * width, width);
        const ConstArrayView<T> grad(dy.data<T>() + m * width, width);
        const T dot = (grad * out).sum();
        ArrayView<T>(dx.data<T>() + m * width, width) = rnorm.data<T>()[m] * (grad - out * dot);
      }
    });
  });
}

}  // namespace

void bind_norm() {
  ops::rms_norm.bind(DeviceKind::cpu, rms_norm);
  ops::rms_norm_backward.bind(DeviceKind::cpu, rms_norm_backward);
  ops::layer_norm.bind(DeviceKind::cpu, layer_norm);
  ops::layer_norm_backward.bind(DeviceKind::cpu, layer_norm_backward);
  ops::l2_norm.bind(DeviceKind::cpu, l2_norm);
  ops::l2_norm_backward.bind(DeviceKind::cpu, l2_norm_backward);
}

}  // namespace quire::cpu
