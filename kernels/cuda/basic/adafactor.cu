// Adafactor in a few launches. Sums are f64, in orders that the shape decides. A launch that needs another's sums reads
// them on the device.
#include "kernels/checks.h"
#include "kernels/cuda/basic/total.h"
#include "kernels/optimizer.h"

namespace quire::cuda {

namespace {

// Returns the square of the scaled gradient. The factor is rounded as in the update.
template <typename T>
struct SquaredGradient {
  const double* control = nullptr;
  template <typename To, typename From>
  __device__ To term(From gradient) const {
    const To g = static_cast<To>(gradient * static_cast<T>(control[0]));
    return g * g;
  }
};

template <typename T>
__device__ inline T moment(T before, double now, double beta2) {
  return static_cast<T>(beta2 * static_cast<double>(before) + (1.0 - beta2) * now);
}

// Computes the second moments of rows with one warp per row; a warp takes several rows when there are very many.
template <typename T, int kPack>
__global__ void row_moments_kernel(T* row, const T* gradient, const double* control, int64_t n, int64_t m, double beta2,
                                   double eps, bool aligned) {
  if (control[1] == 0) return;
  const SquaredGradient<T> square{control};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t i = first_element() / kWarp; i < n; i += element_stride() / kWarp) {
    double sum = 0;
#pragma unroll 4
    for (int64_t j = lane * kPack; j < m; j += kWarp * kPack) {
      const Pack<T, kPack> pack = load<kPack>(gradient + i * m + j, aligned);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum += square.template term<double>(pack.value[k]);
    }
    sum = warp_sum(sum);
    if (lane == 0) row[i] = moment(row[i], sum / static_cast<double>(m) + eps, beta2);
  }
}

// Computes the second moments of columns, and the factor by which each column multiplies the gradient.
template <typename T>
__global__ void column_moments_kernel(T* column, T* column_factors, const double* sums, const double* control,
                                      int64_t n, int64_t m, double beta2, double eps) {
  if (control[1] == 0) return;
  for (int64_t j = first_element(); j < m; j += element_stride()) {
    const T now = moment(column[j], sums[j] / static_cast<double>(n) + eps, beta2);
    column[j] = now;
    column_factors[j] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(now)));
  }
}

template <typename T>
__global__ void row_factors_kernel(T* row_factors, const T* row, const double* total, int64_t n) {
  const double mean = *total / static_cast<double>(n);
  for (int64_t i = first_element(); i < n; i += element_stride()) {
    row_factors[i] = static_cast<T>(std::sqrt(mean / static_cast<double>(row[i])));
  }
}

// Writes the block's sums of squares of u and of w to partial [2, blocks].
__device__ inline void keep_sums(double* partial, double updates, double weights) {
  __shared__ double of_warps[kBlock / kWarp];
  updates = block_sum(updates, of_warps);
  weights = block_sum(weights, of_warps);
  if (threadIdx.x != 0) return;  // past the last barrier
  partial[blockIdx.x] = updates;
  partial[gridDim.x + blockIdx.x] = weights;
}

// Holds the factors of the gradient: that of a row, and those of the columns of a pack within it.
template <typename T, int kPack>
struct FactorsAt {
  T row;
  Pack<T, kPack> columns;

  __device__ FactorsAt(const T* row_factors, const T* column_factors, int64_t at, int64_t m, bool aligned) {
    const int64_t i = at / m;
    row = row_factors[i];
    columns = load<kPack>(column_factors + (at - i * m), aligned);
  }
};

template <typename T, int kPack>
__global__ void factored_sums_kernel(double* partial, const T* w, const T* gradient, const T* row_factors,
                                     const T* column_factors, const double* control, int64_t count, int64_t m,
                                     bool aligned) {
  const T factor = static_cast<T>(control[0]);
  double updates = 0;
  double weights = 0;
  for (int64_t at = first_element() * kPack; at < count; at += element_stride() * kPack) {
    const FactorsAt<T, kPack> factors(row_factors, column_factors, at, m, aligned);
    const Pack<T, kPack> g = load<kPack>(gradient + at, aligned);
    const Pack<T, kPack> now = load<kPack>(w + at, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const auto u = static_cast<double>(g.value[k] * factor * factors.row * factors.columns.value[k]);
      const auto x = static_cast<double>(now.value[k]);
      updates += u * u;
      weights += x * x;
    }
  }
  keep_sums(partial, updates, weights);
}

// Computes the second moment of each weight by itself, and the sums.
template <typename T>
__global__ void each_sums_kernel(double* partial, T* second, const T* w, const T* gradient, const double* control,
                                 int64_t count, double beta2, double eps) {
  if (control[1] == 0) return;
  const T factor = static_cast<T>(control[0]);
  double updates = 0;
  double weights = 0;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const auto g = static_cast<double>(gradient[i] * factor);
    const T now = moment(second[i], g * g + eps, beta2);
    const auto x = static_cast<double>(w[i]);
    second[i] = now;
    updates += g * g / static_cast<double>(now);
    weights += x * x;
  }
  keep_sums(partial, updates, weights);
}

// Applies the update once u is known up to its clipping.
template <typename T>
struct Step {
  T keep;
  T beta;
  double learning_rate;
  double update_clip;
  double eps;
  bool parameter_scale;
  double count;

  Step(const ops::Adafactor& o, int64_t all)
      : keep(static_cast<T>(1.0 - o.decay)),
        beta(static_cast<T>(o.beta1)),
        learning_rate(o.learning_rate),
        update_clip(o.update_clip),
        eps(o.eps2),
        parameter_scale(o.parameter_scale),
        count(static_cast<double>(all)) {}

  // sums holds the sums of squares of u and of w.
  __device__ T clip(const double* sums) const {
    const double excess = std::sqrt(sums[0] / count) / update_clip;
    return static_cast<T>(1.0 / (excess < 1.0 ? 1.0 : excess));
  }
  __device__ T rate(const double* sums) const {
    const double size = std::sqrt(sums[1] / count);
    return static_cast<T>(learning_rate * (!parameter_scale ? 1.0 : size < eps ? eps : size));
  }
  // With `averages`, the moving mean of updates is stored and applied.
  __device__ void apply(T& w, T& mean, bool averages, T clipped, T rate_now) const {
    T u = clipped;
    if (averages) {
      u = beta * mean + (T{1} - beta) * clipped;
      mean = u;
    }
    w = keep * w - rate_now * u;
  }
};

template <typename T, int kPack>
__global__ void apply_factored_kernel(T* w, T* mean, const T* gradient, const T* row_factors, const T* column_factors,
                                      const double* sums, const double* control, Step<T> step, int64_t count, int64_t m,
                                      bool aligned) {
  if (control[1] == 0) return;
  const T factor = static_cast<T>(control[0]);
  const T clip = step.clip(sums);
  const T rate = step.rate(sums);
  for (int64_t at = first_element() * kPack; at < count; at += element_stride() * kPack) {
    const FactorsAt<T, kPack> factors(row_factors, column_factors, at, m, aligned);
    const Pack<T, kPack> g = load<kPack>(gradient + at, aligned);
    Pack<T, kPack> now = load<kPack>(w + at, aligned);
    Pack<T, kPack> means{};
    if (mean != nullptr) means = load<kPack>(mean + at, aligned);
#pragma unroll
    for (int k = 0; k < kPack; ++k) {
      const T u = g.value[k] * factor * factors.row * factors.columns.value[k];
      step.apply(now.value[k], means.value[k], mean != nullptr, clip * u, rate);
    }
    store<kPack>(w + at, now, aligned);
    if (mean != nullptr) store<kPack>(mean + at, means, aligned);
  }
}

template <typename T>
__global__ void apply_each_kernel(T* w, T* mean, const T* gradient, const T* second, const double* sums,
                                  const double* control, Step<T> step, int64_t count) {
  if (control[1] == 0) return;
  const T factor = static_cast<T>(control[0]);
  const T clip = step.clip(sums);
  const T rate = step.rate(sums);
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    T now = mean == nullptr ? T{0} : mean[i];
    step.apply(w[i], now, mean != nullptr, clip * (gradient[i] * factor / std::sqrt(second[i])), rate);
    if (mean != nullptr) mean[i] = now;
  }
}

// Returns the sums over all blocks: f64 [2].
Tensor add_partial(const Tensor& partial) {
  const Tensor sums = Tensor::empty({2}, DType::f64, partial.device());
  for (int which = 0; which < 2; ++which) {
    add_up(partial.device(), sums.data<double>() + which,
           static_cast<const double*>(partial.data<double>() + which * partial.dim(1)), partial.dim(1), false);
  }
  return sums;
}

template <typename T>
void update_each(T* w, T* second, T* mean, const T* gradient, const double* control, Device device, int64_t count,
                 const ops::Adafactor& o) {
  const dim3 blocks = blocks_for(count);
  const Tensor partial = Tensor::empty({2, blocks.x}, DType::f64, device);
  launch(each_sums_kernel<T>, blocks, kBlock, 0, partial.data<double>(), second, w, gradient, control, count, o.beta2,
         o.eps1);
  const Tensor sums = add_partial(partial);
  launch(apply_each_kernel<T>, blocks, kBlock, 0, w, mean, gradient, second, sums.data<double>(), control,
         Step<T>(o, count), count);
}

template <typename T, int kPack>
void update_factored(T* w, T* row, T* column, T* mean, const T* gradient, const double* control, Device device,
                     int64_t n, int64_t m, const ops::Adafactor& o) {
  const bool aligned = are_aligned({w, mean, gradient});
  launch(row_moments_kernel<T, kPack>, blocks_for(n * kWarp), kBlock, 0, row, gradient, control, n, m, o.beta2, o.eps1,
         aligned);
  const Tensor column_sums = Tensor::empty({m}, DType::f64, device);
  sum_columns(device, column_sums.data<double>(), gradient, n, m, m, false, SquaredGradient<T>{control});
  const Tensor column_factors = Tensor::empty({m}, dtype_of<T>(), device);
  launch(column_moments_kernel<T>, blocks_for(m), kBlock, 0, column, column_factors.data<T>(),
         column_sums.data<double>(), control, n, m, o.beta2, o.eps1);
  const Tensor total = Tensor::empty({1}, DType::f64, device);
  add_up(device, total.data<double>(), static_cast<const T*>(row), n, false);
  const Tensor row_factors = Tensor::empty({n}, dtype_of<T>(), device);
  launch(row_factors_kernel<T>, blocks_for(n), kBlock, 0, row_factors.data<T>(), row, total.data<double>(), n);

  const int64_t count = n * m;
  const dim3 blocks = blocks_for(count / kPack);
  const Tensor partial = Tensor::empty({2, blocks.x}, DType::f64, device);
  launch(factored_sums_kernel<T, kPack>, blocks, kBlock, 0, partial.data<double>(), w, gradient, row_factors.data<T>(),
         column_factors.data<T>(), control, count, m, aligned);
  const Tensor sums = add_partial(partial);
  launch(apply_factored_kernel<T, kPack>, blocks, kBlock, 0, w, mean, gradient, row_factors.data<T>(),
         column_factors.data<T>(), sums.data<double>(), control, Step<T>(o, count), count, m, aligned);
}

void adafactor(const Tensor& w, const Tensor& row, const Tensor& column, const Tensor& mean, const Tensor& gradient,
               const Tensor& control, const ops::Adafactor& o) {
  check_adafactor(w, row, column, mean, gradient, control);
  const int64_t n = w.dim(0);
  const int64_t m = w.dim(1);
  if (n * m == 0) return;
  dispatch_wide(w.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const means = mean.defined() ? mean.data<T>() : nullptr;
    const T* const g = gradient.data<T>();
    const double* const scale_and_apply = control.data<double>();
    if (column.defined()) {
      with_pack<T>(m, [&](auto pack) {
        update_factored<T, decltype(pack)::value>(w.data<T>(), row.data<T>(), column.data<T>(), means, g,
                                                  scale_and_apply, w.device(), n, m, o);
      });
    } else {
      update_each(w.data<T>(), row.data<T>(), means, g, scale_and_apply, w.device(), n * m, o);
    }
  });
}

}  // namespace

void bind_adafactor() {
  ops::adafactor.bind(DeviceKind::cuda, adafactor);
}

}  // namespace quire::cuda
