// Optimizer updates beside those of AdamW.
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/optimizer.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

double root_mean_square(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// The algorithms as printed: row sums times column sums over the sum of all.
void update_by_definition(double* w, double* row, double* column, double* mean, const double* gradient, int64_t n,
                          int64_t m, double scale_of_gradient, const ops::Adafactor& o) {
  const auto count = static_cast<size_t>(n * m);
  std::vector<double> g(gradient, gradient + count);
  std::vector<double> v(count);
  for (double& value : g) value *= scale_of_gradient;
  const auto blend = [&](double& moment, double now) { moment = o.beta2 * moment + (1 - o.beta2) * now; };
  if (column == nullptr) {
    for (size_t i = 0; i < count; ++i) {
      blend(row[i], g[i] * g[i] + o.eps1);
      v[i] = row[i];
    }
  } else {
    const auto rows = static_cast<double>(n);
    const auto columns = static_cast<double>(m);
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < m; ++j) sum += g[static_cast<size_t>(i * m + j)] * g[static_cast<size_t>(i * m + j)];
      blend(row[i], sum / columns + o.eps1);
    }
    double total = 0;  // of the row sums
    for (int64_t i = 0; i < n; ++i) total += columns * row[i];
    for (int64_t j = 0; j < m; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += g[static_cast<size_t>(i * m + j)] * g[static_cast<size_t>(i * m + j)];
      blend(column[j], sum / rows + o.eps1);
      for (int64_t i = 0; i < n; ++i) v[static_cast<size_t>(i * m + j)] = columns * row[i] * rows * column[j] / total;
    }
  }
  std::vector<double> u(count);
  for (size_t i = 0; i < count; ++i) u[i] = g[i] / std::sqrt(v[i]);
  const double clip = std::max(1.0, root_mean_square(u) / o.update_clip);
  const double scale = o.parameter_scale ? std::max(o.eps2, root_mean_square({w, w + count})) : 1.0;
  for (size_t i = 0; i < count; ++i) {
    u[i] /= clip;
    if (mean != nullptr) {
      mean[i] = o.beta1 * mean[i] + (1 - o.beta1) * u[i];
      u[i] = mean[i];
    }
    w[i] = (1 - o.decay) * w[i] - o.learning_rate * scale * u[i];
  }
}

struct AdafactorVariant {
  const char* name;
  bool factored;
  bool mean;
  ops::Adafactor options;
  double scale = 1;
};

void add_adafactor(std::vector<OpCase>& cases, RandomTensors& random) {
  const AdafactorVariant variants[] = {
      {"plain", true, false, {.learning_rate = 0.1, .beta2 = 0.6}},
      {"first", true, false, {.learning_rate = 0.1, .beta2 = 0}},
      {"all",
       true,
       true,
       {.learning_rate = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.9,
        .eps1 = 1e-3,
        .update_clip = 0.5,
        .parameter_scale = true,
        .decay = 0.03},
       0.7},
      {"small_weights",
       true,
       false,
       {.learning_rate = 0.1, .beta2 = 0.5, .eps2 = 100, .update_clip = 100, .parameter_scale = true}},
      {"each", false, true, {.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.6, .parameter_scale = true}},
  };
  // Odd sizes, one row, one column, more rows than parts, more values than a tile, rows of whole vectors.
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {5, 7}, {1, 13}, {131, 1}, {259, 67}, {37, 152}}) {
    for (const AdafactorVariant& variant : variants) {
      const auto positive = [&](const Shape& shape) {
        const Tensor tensor = random.normal(shape);
        for (int64_t i = 0; i < tensor.numel(); ++i) values(tensor)[i] = std::abs(values(tensor)[i]) + 0.25;
        return converted(converted(tensor, DType::f32), DType::f64);
      };
      Tensors inputs{random.normal({n, m}), variant.factored ? positive({n}) : positive({n, m}), random.normal({n, m})};
      if (variant.factored) inputs.push_back(positive({m}));
      if (variant.mean) inputs.push_back(random.normal({n, m}));
      const auto column = [factored = variant.factored](const Tensors& in) { return factored ? in[3] : Tensor(); };
      const auto mean = [has = variant.mean](const Tensors& in) { return has ? in.back() : Tensor(); };
      std::vector<size_t> all(inputs.size());
      std::iota(all.begin(), all.end(), size_t{0});
      for (const double apply : {1.0, 0.0}) {
        if (apply == 0 && n > 5) continue;
        add_operation(
            cases, "adafactor",
            std::string(variant.name) + "_" + std::to_string(n) + "x" + std::to_string(m) +
                (apply == 0 ? "_not_applied" : ""),
            inputs, apply == 0 ? 0 : m,
            [=, o = variant.options, s = variant.scale](const Tensors& in) {
              ops::adafactor(in[0], in[1], column(in), mean(in), in[2], f64_beside(in[0], {s, apply}), o);
              return in;
            },
            [=, n = n, m = m, o = variant.options, s = variant.scale](const Tensors& in) {
              const auto data = [](const Tensor& x) { return x.defined() ? values(x) : nullptr; };
              if (apply != 0) {
                update_by_definition(values(in[0]), values(in[1]), data(column(in)), data(mean(in)), values(in[2]), n,
                                     m, s, o);
              }
              return in;
            },
            all);
      }
    }
  }
}

void add_moving_average(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{33001}}) {
    for (const double apply : {1.0, 0.0}) {
      add_in_place(
          cases, "moving_average", std::to_string(count) + (apply == 0 ? "_not_applied" : ""),
          {random.normal({count}), random.normal({count})}, apply == 0 ? 0 : 1,
          [apply](const Tensors& in) {
            ops::moving_average(in[0], in[1], f64_beside(in[0], {0.5, apply}), 0.75);
          },
          [apply](const Tensors& in) {
            for (int64_t i = 0; i < in[0].numel(); ++i) {
              values(in[0])[i] += apply * 0.25 * (values(in[1])[i] - values(in[0])[i]);
            }
          },
          {0, 1});
    }
  }
}

struct Judged {
  const char* name;
  double loss_sum, squared_norm;
  bool sticky;
  double failed_before;
  double loss, norm, scale, apply, first_failed;  // the expected results
};

void add_step_outcome(std::vector<OpCase>& cases) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // 4 targets, clipped to 5, moments hold norms below 7, step 9.
  for (const Judged& j : {Judged{"good", 6, 16, false, 0, 1.5, 4, 1, 1, 0},
                          {"clipped", -6, 100, true, 0, -1.5, 10, 0.5, 1, 0},
                          {"loss_infinite", infinity, 16, false, 0, infinity, 4, 1, 0, 0},
                          {"loss_infinite_sticky", infinity, 16, true, 0, infinity, 4, 1, 0, 9},
                          {"norm_infinite", 6, infinity, true, 0, 1.5, infinity, 0, 0, 9},
                          {"good_after_failed", 6, 16, true, 3, -1, -1, -1, 0, 3},
                          {"failed_after_failed", -infinity, 16, true, 3, -1, -1, -1, 0, 3},
                          {"good_after_failed_not_sticky", 6, 16, false, 3, 1.5, 4, 1, 1, 3}}) {
    add_operation(
        cases, "step_outcome", j.name, {Tensor::from(std::vector<double>{0}, {1})}, 0,
        [j](const Tensors& in) {
          const Tensor outcome = f64_beside(in[0], {-1, -1, -1, -1, j.failed_before, -1});
          ops::step_outcome(outcome, f64_beside(in[0], {j.loss_sum}), f64_beside(in[0], {j.squared_norm}),
                            {.targets = 4, .clip = 5, .largest_norm = 7, .step = 9, .sticky = j.sticky});
          return Tensors{outcome};
        },
        [j](const Tensors& in) {
          return Tensors{f64_beside(in[0], {j.loss, j.norm, j.scale, j.apply, j.first_failed, -1})};
        });
  }
  struct Applies {
    const char* name;
    double loss_sum, squared_norm, targets, clip, apply;
  };
  for (const Applies& a : {Applies{"loss_nan", nan, 16, 4, 5, 0},
                           {"norm_nan", 6, nan, 4, 5, 0},
                           {"too_large", 6, 50, 4, 0, 0},
                           {"as_large_as_clipped", 6, 50, 4, 6, 1},
                           {"without_targets", 0, 16, 0, 5, 1}}) {
    add_operation(
        cases, "step_outcome", a.name, {Tensor::from(std::vector<double>{0}, {1})}, 0,
        [a](const Tensors& in) {
          const Tensor outcome = f64_beside(in[0], {0, 0, 0, 0, 0, 0});
          ops::step_outcome(outcome, f64_beside(in[0], {a.loss_sum}), f64_beside(in[0], {a.squared_norm}),
                            {.targets = a.targets, .clip = a.clip, .largest_norm = 7, .step = 9});
          return Tensors{outcome.slice(0, outcome::kApply, outcome::kApply + 1)};
        },
        [a](const Tensors& in) { return Tensors{f64_beside(in[0], {a.apply})}; });
  }
}

}  // namespace

void add_optimizer_cases(std::vector<OpCase>& cases) {
  RandomTensors random(8);
  add_adafactor(cases, random);
  add_moving_average(cases, random);
  add_step_outcome(cases);
}

}  // namespace quire::test
