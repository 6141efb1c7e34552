// Products and sums.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/optimizer.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

constexpr std::array kActivations{ops::Activation::relu, ops::Activation::gelu, ops::Activation::silu};

double derivative(ops::Activation kind, double x) {
  if (kind == ops::Activation::relu) return x > 0 ? 1 : 0;
  if (kind == ops::Activation::silu) {
    const double s = 1 / (1 + std::exp(-x));
    return s + x * s * (1 - s);
  }
  const double c = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(c * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}

void add_gemm(std::vector<OpCase>& cases, RandomTensors& random, int64_t m, int64_t n, int64_t k, bool transpose_a,
              bool transpose_b, int64_t gap) {
  // Inputs are a, b, what c holds before (also a residual, and where derivatives are taken), and a bias. Products
  // that accumulate, add bias or residual, or apply an activation or its derivative are calls of their own; some give
  // f32 from bf16.
  const auto options = [=](bool accumulate) { return ops::GemmOptions{transpose_a, transpose_b, accumulate}; };
  add_operation(
      cases, "gemm",
      std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (transpose_a ? "_ta" : "") +
          (transpose_b ? "_tb" : "") + (gap > 0 ? "_strided" : ""),
      {transpose_a ? random.normal({k, m}) : random.normal({m, k}),
       transpose_b ? random.normal({n, k}) : random.normal({k, n}), random.normal({m, n}), random.normal({n})},
      k + 1,  // the bias is one of the terms
      [=](const Tensors& in) {
        const Tensor a = with_row_gap(in[0], gap);
        const Tensor b = with_row_gap(in[1], gap);
        const Tensor c = with_row_gap(in[2], gap);
        const Tensor sum = with_row_gap(in[2], gap);
        ops::gemm(c, a, b, options(false));
        ops::gemm(sum, a, b, options(true));
        const Tensor biased = wide_beside(in[0], {m, n});
        ops::GemmOptions with_bias = options(false);
        with_bias.bias = in[3];
        ops::gemm(biased, a, b, with_bias);
        const Tensor active = wide_beside(in[0], {m, n});
        const Tensor pre = wide_beside(in[0], {m, n});
        ops::GemmOptions with_activation = with_bias;
        with_activation.activation = ops::Activation::gelu;
        with_activation.pre = pre;
        ops::gemm(active, a, b, with_activation);
        const Tensor rectified = beside(in[0], {m, n});
        with_activation.activation = ops::Activation::relu;
        with_activation.pre = Tensor();
        ops::gemm(rectified, a, b, with_activation);
        Tensors results{packed(c), packed(sum), biased, active, pre, rectified};
        for (const bool with : {false, true}) {
          results.push_back(beside(in[0], {m, n}));
          ops::GemmOptions with_residual = options(false);
          with_residual.residual = in[2];
          if (with) with_residual.bias = in[3];
          ops::gemm(results.back(), a, b, with_residual);
        }
        for (const ops::Activation kind : kActivations) {
          results.push_back(beside(in[0], {m, n}));
          ops::GemmOptions gradient = options(false);
          gradient.gradient_of = kind;
          gradient.at = in[2];
          ops::gemm(results.back(), a, b, gradient);
        }
        return results;
      },
      [=](const Tensors& in) {
        const Tensor c = like(in[2]);
        const Tensor biased = like(in[2]);
        const Tensor active = like(in[2]);
        const Tensor rectified = like(in[2]);
        const Tensor added = like(in[2]);  // to what c holds before, with the bias
        Tensors gradients;
        for (size_t kind = 0; kind < kActivations.size(); ++kind) gradients.push_back(like(in[2]));
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) {
              sum += values(in[0])[transpose_a ? p * m + i : i * k + p] *
                     values(in[1])[transpose_b ? j * k + p : p * n + j];
            }
            values(c)[i * n + j] = sum;
            for (size_t kind = 0; kind < kActivations.size(); ++kind) {
              values(gradients[kind])[i * n + j] = sum * derivative(kActivations[kind], values(in[2])[i * n + j]);
            }
            values(added)[i * n + j] = values(in[2])[i * n + j] + sum + values(in[3])[j];
            values(in[2])[i * n + j] += sum;
            const double x = sum + values(in[3])[j];
            values(biased)[i * n + j] = x;
            values(rectified)[i * n + j] = std::max(x, 0.0);
            values(active)[i * n + j] =
                x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
          }
        }
        Tensors results{c, in[2], biased, active, biased, rectified, in[2], added};
        results.insert(results.end(), gradients.begin(), gradients.end());
        return results;
      },
      {3});
}

void add_row_sums(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const auto& [rows, width] : {std::pair{1, 1}, {3, 7}, {0, 5}, {37, 264}, {1031, 13}}) {
    add_operation(
        cases, "sum_rows", std::to_string(rows) + "x" + std::to_string(width),
        {random.normal({rows, width}), random.normal({width})}, rows + 1,
        [](const Tensors& in) {
          const Tensor out = like(in[1]);
          ops::sum_rows(out, in[0], false);
          ops::sum_rows(in[1], in[0], true);
          return Tensors{out, in[1]};
        },
        [n = width](const Tensors& in) {
          const Tensor out = like(in[1]);
          for (int64_t i = 0; i < in[0].numel(); ++i) {
            values(out)[i % n] += values(in[0])[i];
            values(in[1])[i % n] += values(in[0])[i];
          }
          return Tensors{out, in[1]};
        },
        {1});
  }
}

Tensors scalar(double value) {
  return {Tensor::from(std::vector<double>{value}, {1})};
}

void add_totals(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const int64_t count : {0, 1, 33001}) {
    // Summed in f64 whatever the input is, so the f32 run is as exact as the f64 one.
    add_operation(
        cases, "sum_all", std::to_string(count), {random.normal({count}, 1, 0.1)}, 1,
        [](const Tensors& in) {
          const Tensor total = Tensor::zeros({1}, DType::f64, in[0].device());
          ops::sum_all(total, in[0]);
          return Tensors{total};
        },
        [](const Tensors& in) {
          double sum = 0;
          for (const double x : in[0].to_vector<double>()) sum += x;
          return scalar(sum);
        });
    add_operation(
        cases, "squared_norm", std::to_string(count), {random.normal({count})}, 1,
        [](const Tensors& in) {
          const Tensor total = f64_beside(in[0], {2});  // accumulates
          ops::squared_norm(total, in[0]);
          return Tensors{total};
        },
        [](const Tensors& in) {
          double sum = 2;
          for (const double x : in[0].to_vector<double>()) sum += x * x;
          return scalar(sum);
        },
        {0});
  }
}

}  // namespace

void add_reduction_cases(std::vector<OpCase>& cases) {
  RandomTensors random(3);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      add_gemm(cases, random, 1, 1, 1, transpose_a, transpose_b, 0);
      add_gemm(cases, random, 7, 13, 5, transpose_a, transpose_b, 3);
      add_gemm(cases, random, 131, 67, 149, transpose_a, transpose_b, 0);
      add_gemm(cases, random, 15, 811, 801, transpose_a, transpose_b, 5);  // more than a tile, a pack and a depth
    }
  }
  add_gemm(cases, random, 1, 257, 31, false, true, 0);
  add_gemm(cases, random, 5, 3, 0, false, false, 0);  // an empty sum is zero
  add_gemm(cases, random, 0, 3, 5, false, false, 0);
  add_row_sums(cases, random);
  add_totals(cases, random);
  for (const bool transpose_b : {false, true}) {
    add_gemm(cases, random, 16, 64, 24, false, transpose_b, 0);  // what cuBLASLt has built in needs such sizes
  }
}

}  // namespace quire::test
