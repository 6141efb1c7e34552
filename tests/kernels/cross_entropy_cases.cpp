// Cross-entropy of rows of logits, with label smoothing and z-loss.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Tensors = std::vector<Tensor>;

int64_t target_at(const Tensor& ids, int64_t i) {
  return ids.data<int32_t>()[i];
}

void add_cross_entropy(std::vector<OpCase>& cases, RandomTensors& random, int64_t rows, int64_t vocabulary,
                       double std) {
  const std::string size = std::to_string(rows) + "x" + std::to_string(vocabulary) + (std > 10 ? "_large" : "");
  const auto log_sum = [=](const Tensor& logits, int64_t m) {
    const double* x = values(logits) + m * vocabulary;
    const double top = *std::max_element(x, x + vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(x[v] - top);
    return top + std::log(sum);
  };
  const auto losses = [=](const Tensors& in) {
    const Tensor nll = Tensor::zeros({rows}, DType::f64);
    for (int64_t m = 0; m < rows; ++m) {
      if (in[2].data<uint8_t>()[m] == 0) continue;
      values(nll)[m] = log_sum(in[0], m) - values(in[0])[m * vocabulary + target_at(in[1], m)];
    }
    return nll;
  };
  // The last one has the type of the gradient.
  const Tensors inputs{random.normal({rows, vocabulary}, std), random.integers({rows}, 0, vocabulary),
                       random.flags({rows}), random.normal({rows, vocabulary})};
  cases.push_back({"cross_entropy",
                   size,
                   inputs,
                   [=](const Tensors& in) {
                     const Tensor nll = wide_beside(in[0], {rows});
                     ops::cross_entropy(nll, {}, in[0], in[1], in[2], {}, {});
                     return Tensors{nll};
                   },
                   [=](const Tensors& in) { return Tensors{losses(in)}; },
                   vocabulary,
                   1,
                   {0}});
  cases.push_back({"cross_entropy",
                   size + "_gradient",
                   inputs,
                   [=](const Tensors& in) {
                     const Tensor nll = wide_beside(in[0], {rows});
                     const Tensor again = wide_beside(in[0], {rows});
                     const Tensor factor = f64_beside(in[0], {0.7});
                     ops::cross_entropy(nll, in[3], in[0], in[1], in[2], factor, {});
                     ops::cross_entropy(again, in[0], in[0], in[1], in[2], factor, {});
                     return Tensors{nll, again, in[3], in[0]};
                   },
                   [=](const Tensors& in) {
                     const Tensor out = like(in[0]);
                     for (int64_t m = 0; m < rows; ++m) {
                       if (in[2].data<uint8_t>()[m] == 0) continue;
                       const double sum = log_sum(in[0], m);
                       for (int64_t v = 0; v < vocabulary; ++v) {
                         const int64_t i = m * vocabulary + v;
                         values(out)[i] = 0.7 * (std::exp(values(in[0])[i] - sum) - (v == target_at(in[1], m) ? 1 : 0));
                       }
                     }
                     const Tensor nll = losses(in);
                     return Tensors{nll, nll, out, out};
                   },
                   // exp() turns the absolute error of a logit near 100 into a relative one.
                   std > 10 ? vocabulary + 100 * 100 : vocabulary,
                   1,
                   {0}});
}

// Label smoothing and z-loss, from the probabilities.
void add_cross_entropy_terms(std::vector<OpCase>& cases, RandomTensors& random, int64_t rows, int64_t vocabulary,
                             double smoothing, double log_sum_weight) {
  cases.push_back(
      {"cross_entropy",
       fmt::format("{}x{}_smoothing_{}_z_{}", rows, vocabulary, 100 * smoothing, 100 * log_sum_weight),
       {random.normal({rows, vocabulary}, 2), random.integers({rows}, 0, vocabulary), random.flags({rows}),
        random.normal({rows, vocabulary})},
       [=](const Tensors& in) {
         const Tensor nll = wide_beside(in[0], {rows}), log_sum = wide_beside(in[0], {rows});
         const Tensor uniform = wide_beside(in[0], {rows});
         ops::cross_entropy(
             nll, in[3], in[0], in[1], in[2], f64_beside(in[0], {0.7}),
             {.smoothing = smoothing, .log_sum_weight = log_sum_weight, .log_sum = log_sum, .uniform = uniform});
         return Tensors{nll, log_sum, uniform, in[3]};
       },
       [=](const Tensors& in) {
         const Tensor nll = Tensor::zeros({rows}, DType::f64), log_sum = Tensor::zeros({rows}, DType::f64);
         const Tensor uniform = Tensor::zeros({rows}, DType::f64), gradient = Tensor::zeros(in[0].shape(), DType::f64);
         for (int64_t m = 0; m < rows; ++m) {
           if (in[2].data<uint8_t>()[m] == 0) continue;
           const double* x = values(in[0]) + m * vocabulary;
           double sum = 0;
           for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(x[v]);
           const double z = std::log(sum), even = 1 / static_cast<double>(vocabulary);
           const int64_t target = target_at(in[1], m);
           values(nll)[m] = -std::log(std::exp(x[target]) / sum);
           values(log_sum)[m] = z;
           for (int64_t v = 0; v < vocabulary; ++v) {
             const double p = std::exp(x[v]) / sum;
             values(uniform)[m] -= even * std::log(p);
             const double share = (v == target ? 1 - smoothing : 0) + smoothing * even;
             values(gradient)[m * vocabulary + v] = 0.7 * (p - share + 2 * log_sum_weight * z * p);
           }
         }
         return Tensors{nll, log_sum, uniform, gradient};
       },
       vocabulary,
       8,
       {0}});
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
    add_cross_entropy_terms(cases, random, 5, 13, smoothing, weight);
  }
  add_cross_entropy_terms(cases, random, 3, 2056, 0.1, 0.01);  // a row of a block of a GPU
  add_cross_entropy_terms(cases, random, 2, 9008, 0.1, 0.01);  // in shared memory
}

}  // namespace quire::test
