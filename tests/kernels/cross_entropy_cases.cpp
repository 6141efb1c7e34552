// Cross-entropy of rows of logits, with label smoothing and z-loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

// Losses and gradients from the probabilities, with label smoothing and z-loss. The last input has the type of the
// gradient; without terms beside the likelihood the gradient also goes in place of the logits, or is not made.
void add_cross_entropy(std::vector<OpCase>& cases, RandomTensors& random, int64_t rows, int64_t vocabulary, double std,
                       double smoothing = 0, double log_sum_weight = 0) {
  const bool plain = smoothing == 0 && log_sum_weight == 0;
  add_operation(
      cases, "cross_entropy",
      fmt::format("{}x{}{}", rows, vocabulary, std > 10 ? "_large" : "") +
          (plain ? "" : fmt::format("_smoothing_{}_z_{}", 100 * smoothing, 100 * log_sum_weight)),
      {random.normal({rows, vocabulary}, std), random.integers({rows}, 0, vocabulary), random.flags({rows}),
       random.normal({rows, vocabulary})},
      // exp() turns the absolute error of a logit near 100 into a relative one.
      std > 10 ? vocabulary + 100 * 100 : vocabulary,
      [=](const Tensors& in) {
        const Tensor nll = wide_beside(in[0], {rows}), log_sum = wide_beside(in[0], {rows});
        const Tensor uniform = wide_beside(in[0], {rows}), factor = f64_beside(in[0], {0.7});
        ops::CrossEntropyTerms terms{.smoothing = smoothing, .log_sum_weight = log_sum_weight};
        if (!plain) terms.log_sum = log_sum, terms.uniform = uniform;
        ops::cross_entropy(nll, in[3], in[0], in[1], in[2], factor, terms);
        if (!plain) return Tensors{nll, in[3], log_sum, uniform};
        ops::cross_entropy(log_sum, {}, in[0], in[1], in[2], {}, {});
        ops::cross_entropy(uniform, in[0], in[0], in[1], in[2], factor, {});
        return Tensors{nll, in[3], log_sum, uniform, in[0]};
      },
      [=](const Tensors& in) {
        const Tensor nll = Tensor::zeros({rows}, DType::f64), log_sum = Tensor::zeros({rows}, DType::f64);
        const Tensor uniform = Tensor::zeros({rows}, DType::f64), gradient = Tensor::zeros(in[0].shape(), DType::f64);
        for (int64_t m = 0; m < rows; ++m) {
          if (in[2].data<uint8_t>()[m] == 0) continue;
          const double* x = values(in[0]) + m * vocabulary;
          const double top = *std::max_element(x, x + vocabulary);
          double sum = 0;
          for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(x[v] - top);
          const double z = top + std::log(sum), even = 1 / static_cast<double>(vocabulary);
          const int64_t target = at(in[1], m);
          values(nll)[m] = z - x[target];
          values(log_sum)[m] = z;
          for (int64_t v = 0; v < vocabulary; ++v) {
            const double p = std::exp(x[v] - z);
            values(uniform)[m] += even * (z - x[v]);
            const double share = (v == target ? 1 - smoothing : 0) + smoothing * even;
            values(gradient)[m * vocabulary + v] = 0.7 * (p - share + 2 * log_sum_weight * z * p);
          }
        }
        if (plain) return Tensors{nll, gradient, nll, nll, gradient};
        return Tensors{nll, gradient, log_sum, uniform};
      },
      {0}, plain ? 1.0 : 8.0);
}

}  // namespace

void add_cross_entropy_cases(std::vector<OpCase>& cases) {
  RandomTensors random(10);
  add_cross_entropy(cases, random, 1, 1, 1);
  add_cross_entropy(cases, random, 7, 13, 2);
  add_cross_entropy(cases, random, 0, 3, 1);
  add_cross_entropy(cases, random, 5, 7, 100);
  add_cross_entropy(cases, random, 67, 523, 3);
  add_cross_entropy(cases, random, 2, 9008, 3);  // a row that a block of a GPU has in shared memory
  add_cross_entropy(cases, random, 3, 2056, 5);
  add_cross_entropy(cases, random, 2, 8201, 5);
  for (const auto& [smoothing, weight] : {std::pair{0.1, 0.0}, {0.0, 0.01}, {0.3, 0.02}}) {
    add_cross_entropy(cases, random, 5, 13, 2, smoothing, weight);
  }
  add_cross_entropy(cases, random, 3, 2056, 2, 0.1, 0.01);  // a row of a block of a GPU
  add_cross_entropy(cases, random, 2, 9008, 2, 0.1, 0.01);  // in shared memory
}

}  // namespace quire::test
