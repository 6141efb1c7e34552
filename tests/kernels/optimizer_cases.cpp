// Optimizer updates beside those of AdamW.
#include <cmath>

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
                          int64_t m, const ops::Adafactor& o) {
  const auto count = static_cast<size_t>(n * m);
  std::vector<double> g(gradient, gradient + count);
  std::vector<double> v(count);
  for (double& value : g) value *= o.gradient_scale;
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
    w[i] = (1 - o.learning_rate * o.weight_decay) * w[i] - o.learning_rate * scale * u[i];
  }
}

struct AdafactorVariant {
  const char* name;
  bool factored;
  bool mean;
  ops::Adafactor options;
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
        .weight_decay = 0.3,
        .gradient_scale = 0.7}},
      {"small_weights",
       true,
       false,
       {.learning_rate = 0.1, .beta2 = 0.5, .eps2 = 100, .update_clip = 100, .parameter_scale = true}},
      {"each", false, true, {.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.6, .parameter_scale = true}},
  };
  // Odd sizes, one row, one column, more rows than parts, more values than a tile.
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {5, 7}, {1, 13}, {131, 1}, {259, 67}}) {
    for (const AdafactorVariant& variant : variants) {
      const auto positive = [&](const Shape& shape) {
        const Tensor tensor = random.normal(shape);
        for (int64_t i = 0; i < tensor.numel(); ++i) values(tensor)[i] = std::abs(values(tensor)[i]) + 0.25;
        return converted(converted(tensor, DType::f32), DType::f64);
      };
      std::vector<Tensor> inputs{random.normal({n, m}), variant.factored ? positive({n}) : positive({n, m}),
                                 random.normal({n, m})};
      if (variant.factored) inputs.push_back(positive({m}));
      if (variant.mean) inputs.push_back(random.normal({n, m}));
      const auto column = [factored = variant.factored](const std::vector<Tensor>& in) {
        return factored ? in[3] : Tensor();
      };
      const auto mean = [has = variant.mean](const std::vector<Tensor>& in) { return has ? in.back() : Tensor(); };
      cases.push_back({"adafactor", std::string(variant.name) + "_" + std::to_string(n) + "x" + std::to_string(m),
                       inputs,
                       [=, o = variant.options](const std::vector<Tensor>& in) {
                         ops::adafactor(in[0], in[1], column(in), mean(in), in[2], o);
                         return in;
                       },
                       [=, n = n, m = m, o = variant.options](const std::vector<Tensor>& in) {
                         const Tensor c = column(in);
                         const Tensor b = mean(in);
                         update_by_definition(values(in[0]), values(in[1]), c.defined() ? values(c) : nullptr,
                                              b.defined() ? values(b) : nullptr, values(in[2]), n, m, o);
                         return in;
                       },
                       m});
    }
  }
}

void add_moving_average(std::vector<OpCase>& cases, RandomTensors& random) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{33001}}) {
    cases.push_back({"moving_average",
                     std::to_string(count),
                     {random.normal({count}), random.normal({count})},
                     [](const std::vector<Tensor>& in) {
                       ops::moving_average(in[0], in[1], 0.75);
                       return std::vector<Tensor>{in[0]};
                     },
                     [](const std::vector<Tensor>& in) {
                       for (int64_t i = 0; i < in[0].numel(); ++i) {
                         values(in[0])[i] = 0.75 * values(in[0])[i] + 0.25 * values(in[1])[i];
                       }
                       return std::vector<Tensor>{in[0]};
                     }});
  }
}

}  // namespace

void add_optimizer_cases(std::vector<OpCase>& cases) {
  RandomTensors random(8);
  add_adafactor(cases, random);
  add_moving_average(cases, random);
}

}  // namespace quire::test
