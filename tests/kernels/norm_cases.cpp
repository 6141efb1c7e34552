#include "kernels/norm.h"

#include <cmath>

#include "kernels/elementwise.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

constexpr double kEps = 1e-3;

using Tensors = std::vector<Tensor>;

struct RowStats {
  double mean = 0;
  double scale = 0;  // what the centred row is multiplied by
};

// layer: subtract the mean; otherwise mean 0.
RowStats stats(const double* x, int64_t width, bool layer) {
  RowStats s;
  for (int64_t i = 0; i < width && layer; ++i) s.mean += x[i] / static_cast<double>(width);
  double square = 0;
  for (int64_t i = 0; i < width; ++i) square += (x[i] - s.mean) * (x[i] - s.mean);
  s.scale = 1 / std::sqrt(square / static_cast<double>(width) + kEps);
  return s;
}

// inputs: x, weight, bias or undefined. Outputs: y, mean (layer only), rstd.
Tensors forward(const Tensors& in, bool layer) {
  const int64_t rows = in[0].dim(0);
  const int64_t width = in[0].dim(1);
  const Tensor y = like(in[0]);
  const Tensor mean = Tensor::zeros({rows}, DType::f64);
  const Tensor rstd = Tensor::zeros({rows}, DType::f64);
  for (int64_t m = 0; m < rows; ++m) {
    const double* x = values(in[0]) + m * width;
    const RowStats s = stats(x, width, layer);
    values(mean)[m] = s.mean;
    values(rstd)[m] = s.scale;
    for (int64_t i = 0; i < width; ++i) {
      values(y)[m * width + i] = (x[i] - s.mean) * s.scale * values(in[1])[i] + (layer ? values(in[2])[i] : 0);
    }
  }
  if (layer) return {y, mean, rstd};
  return {y, rstd};
}

// inputs: x, weight, dy, and what dx, dweight, dbias hold before. Outputs: dx, dx added to, dweight, dbias (layer
// only). The derivative is written out as a full Jacobian: dy_i / dx_j = w_i scale (delta_ij - [layer] / n - c_i c_j
// scale^2 / n) with the centred row c.
Tensors backward(const Tensors& in, bool layer) {
  const int64_t rows = in[0].dim(0);
  const int64_t width = in[0].dim(1);
  const Tensor dx = like(in[0]);
  for (int64_t m = 0; m < rows; ++m) {
    const double* x = values(in[0]) + m * width;
    const double* dy = values(in[2]) + m * width;
    const RowStats s = stats(x, width, layer);
    for (int64_t i = 0; i < width; ++i) {
      const double c = x[i] - s.mean;
      values(in[4])[i] += dy[i] * c * s.scale;
      values(in[5])[i] += dy[i];
      for (int64_t j = 0; j < width; ++j) {
        const double shared = (layer ? 1 : 0) + c * (x[j] - s.mean) * s.scale * s.scale;
        const double jacobian = (i == j ? 1 : 0) - shared / static_cast<double>(width);
        values(dx)[m * width + j] += dy[i] * values(in[1])[i] * s.scale * jacobian;
      }
    }
  }
  for (int64_t i = 0; i < dx.numel(); ++i) values(in[3])[i] += values(dx)[i];
  if (layer) return {dx, in[3], in[4], in[5]};
  return {dx, in[3], in[4]};
}

Tensor per_row(const Tensor& x) {
  return wide_beside(x, {x.dim(0)});
}

Tensors run_rms(const Tensors& in) {
  const Tensor y = like(in[0]);
  const Tensor rstd = per_row(in[0]);
  ops::rms_norm(y, rstd, in[0], in[1], kEps);
  return {y, rstd};
}

Tensors run_layer(const Tensors& in) {
  const Tensor y = like(in[0]);
  const Tensor mean = per_row(in[0]);
  const Tensor rstd = per_row(in[0]);
  ops::layer_norm(y, mean, rstd, in[0], in[1], in[2], kEps);
  return {y, mean, rstd};
}

Tensors run_rms_backward(const Tensors& in) {
  const Tensor rstd = run_rms(in)[1];
  const Tensor dx = like(in[0]);
  const Tensor unused = like(in[4]);
  ops::rms_norm_backward(dx, unused, in[2], in[0], in[1], rstd, false);
  ops::rms_norm_backward(in[3], in[4], in[2], in[0], in[1], rstd, true);
  return {dx, in[3], in[4]};
}

Tensors run_layer_backward(const Tensors& in) {
  const Tensors saved = run_layer({in[0], in[1], in[1]});
  const Tensor dx = like(in[0]);
  const Tensor unused_weight = like(in[4]);
  const Tensor unused_bias = like(in[5]);
  ops::layer_norm_backward(dx, unused_weight, unused_bias, in[2], in[0], in[1], saved[1], saved[2], false);
  ops::layer_norm_backward(in[3], in[4], in[5], in[2], in[0], in[1], saved[1], saved[2], true);
  return {dx, in[3], in[4], in[5]};
}

void add_l2(std::vector<OpCase>& cases, RandomTensors& random, const Shape& shape, const std::string& size) {
  const auto norm = [](const double* x, int64_t width) {
    double square = kEps;
    for (int64_t i = 0; i < width; ++i) square += x[i] * x[i];
    return 1 / std::sqrt(square);
  };
  cases.push_back({"l2_norm",
                   size,
                   {random.normal(shape)},
                   [](const Tensors& in) {
                     const Tensor y = like(in[0]);
                     const Tensor rnorm = per_row(in[0]);
                     ops::l2_norm(y, rnorm, in[0], kEps);
                     return Tensors{y, rnorm};
                   },
                   [norm](const Tensors& in) {
                     const Tensor y = like(in[0]);
                     const Tensor rnorm = per_row(in[0]);
                     const int64_t width = y.dim(1);
                     for (int64_t i = 0; i < y.numel(); ++i) {
                       values(rnorm)[i / width] = norm(values(in[0]) + i / width * width, width);
                       values(y)[i] = values(in[0])[i] * values(rnorm)[i / width];
                     }
                     return Tensors{y, rnorm};
                   },
                   shape[1]});
  cases.push_back({"l2_norm_backward",
                   size,
                   {random.normal(shape), random.normal(shape)},
                   [](const Tensors& in) {
                     const Tensor y = like(in[0]);
                     const Tensor rnorm = per_row(in[0]);
                     const Tensor dx = like(in[0]);
                     ops::l2_norm(y, rnorm, in[0], kEps);
                     ops::l2_norm_backward(dx, in[1], y, rnorm);
                     return Tensors{dx};
                   },
                   [norm](const Tensors& in) {
                     const Tensor dx = like(in[0]);
                     const int64_t width = dx.dim(1);
                     for (int64_t i = 0; i < dx.numel(); ++i) {
                       const double* x = values(in[0]) + i / width * width;
                       const double* dy = values(in[1]) + i / width * width;
                       const double r = norm(x, width);
                       double dot = 0;
                       for (int64_t j = 0; j < width; ++j) dot += dy[j] * x[j];
                       values(dx)[i] = r * dy[i % width] - r * r * r * dot * x[i % width];
                     }
                     return Tensors{dx};
                   },
                   shape[1]});
}

}  // namespace

void add_norm_cases(std::vector<OpCase>& cases) {
  RandomTensors random(4);
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 7}, Shape{0, 3}, Shape{211, 37}, Shape{3, 641}, Shape{19, 64}, Shape{2, 1304}}) {
    const std::string size = std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
    const Tensors inputs{random.normal(shape, 1.5, 0.5), random.normal({shape[1]}), random.normal({shape[1]})};
    cases.push_back(
        {"rms_norm", size, inputs, run_rms, [](const Tensors& in) { return forward(in, false); }, shape[1], 1, {1, 2}});
    cases.push_back({"layer_norm",
                     size,
                     inputs,
                     run_layer,
                     [](const Tensors& in) { return forward(in, true); },
                     shape[1],
                     1,
                     {1, 2}});
  }
  // Not one or two columns: a normalised row is then constant up to eps, and its derivative is all cancellation.
  for (const Shape& shape :
       {Shape{1, 5}, Shape{5, 7}, Shape{0, 3}, Shape{211, 37}, Shape{3, 641}, Shape{19, 64}, Shape{2, 1304}}) {
    const std::string size = std::to_string(shape[0]) + "x" + std::to_string(shape[1]);
    const Tensors inputs{random.normal(shape, 1.5, 0.5), random.normal({shape[1]}), random.normal(shape),
                         random.normal(shape),           random.normal({shape[1]}), random.normal({shape[1]})};
    // Row means are sums over the width; weight gradients are sums over the rows.
    const int64_t terms = shape[0] + shape[1];
    cases.push_back({"rms_norm_backward",
                     size,
                     inputs,
                     run_rms_backward,
                     [](const Tensors& in) { return backward(in, false); },
                     terms,
                     1,
                     {1, 4, 5}});
    cases.push_back({"layer_norm_backward",
                     size,
                     inputs,
                     run_layer_backward,
                     [](const Tensors& in) { return backward(in, true); },
                     terms,
                     1,
                     {1, 4, 5}});
    add_l2(cases, random, shape, size);
  }
}

}  // namespace quire::test
