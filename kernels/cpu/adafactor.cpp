// Adafactor. Rows are cut into a few parts that depend on the shape; sums are f64 and are added in the order of the
// parts.
#include <array>

#include "kernels/checks.h"
#include "kernels/cpu/common.h"
#include "kernels/optimizer.h"

namespace quire::cpu {

namespace {

enum ScratchSlot { kColumnSums, kRowSums, kUpdateSums, kWeightSums };

struct Parts {
  int64_t rows;
  int64_t count;
  int64_t begin(int64_t part) const { return rows * part / count; }
};

// Adds up value(j) for j in [0, count) in eight lanes, which a processor can add in parallel.
template <typename Value>
double sum_in_lanes(int64_t count, const Value& value) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<size_t>(lane)] += value(j + lane);
  }
  for (; j < count; ++j) lanes[0] += value(j);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double sum_of(const double* values, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

// The end of an update, once u is known up to its clipping.
template <typename T>
struct Step {
  T keep;
  T rate;
  T clip;  // factor of u
  T beta;
  T* mean;  // nullptr: there is no mean

  // clip and rate follow from sums over the whole parameter.
  Step(const ops::Adafactor& o, double squared_update, double squared_weight, int64_t count, T* mean_of_updates)
      : keep(static_cast<T>(1.0 - o.decay)), beta(static_cast<T>(o.beta1)), mean(mean_of_updates) {
    const double rms = std::sqrt(squared_update / static_cast<double>(count));
    clip = static_cast<T>(1.0 / std::max(1.0, rms / o.update_clip));
    const double size = std::sqrt(squared_weight / static_cast<double>(count));
    rate = static_cast<T>(o.learning_rate * (o.parameter_scale ? std::max(o.eps2, size) : 1.0));
  }
  // update(i) is u before its clipping, for i in [begin, end). Two loops avoid a branch inside.
  template <typename Update>
  void apply(T* w, int64_t begin, int64_t end, const Update& update) const {
    if (mean == nullptr) {
      for (int64_t i = begin; i < end; ++i) w[i] = keep * w[i] - rate * (clip * update(i));
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      mean[i] = beta * mean[i] + (T{1} - beta) * (clip * update(i));
      w[i] = keep * w[i] - rate * mean[i];
    }
  }
};

// Updates with a second moment for each weight.
template <typename T>
void update_each(T* w, T* second, T* mean, const T* gradient, T factor, int64_t count, const ops::Adafactor& o) {
  const int64_t tiles = ceil_div(count, kElementTile);
  double* update_sums = scratch<double>(kUpdateSums, tiles);
  double* weight_sums = scratch<double>(kWeightSums, tiles);
  parallel_for(tiles, [&](int64_t tile) {
    double updates = 0;
    double weights = 0;
    for (int64_t i = tile * kElementTile; i < std::min(count, (tile + 1) * kElementTile); ++i) {
      const double g = static_cast<double>(gradient[i] * factor);
      second[i] = static_cast<T>(o.beta2 * static_cast<double>(second[i]) + (1.0 - o.beta2) * (g * g + o.eps1));
      updates += g * g / static_cast<double>(second[i]);
      weights += static_cast<double>(w[i]) * static_cast<double>(w[i]);
    }
    update_sums[tile] = updates;
    weight_sums[tile] = weights;
  });
  const Step<T> step(o, sum_of(update_sums, tiles), sum_of(weight_sums, tiles), count, mean);
  for_elements(count, [&](int64_t begin, int64_t end) {
    step.apply(w, begin, end, [&](int64_t i) { return gradient[i] * factor / std::sqrt(second[i]); });
  });
}

template <typename T>
void update_factored(T* w, T* row, T* column, T* mean, const T* gradient, T factor, int64_t n, int64_t m,
                     const ops::Adafactor& o) {
  const Parts parts{n, reduction_parts(n)};
  double* column_sums = scratch<double>(kColumnSums, parts.count * m);
  double* row_sums = scratch<double>(kRowSums, n);
  parallel_for(parts.count, [&](int64_t part) {
    double* sums = column_sums + part * m;
    std::fill(sums, sums + m, 0.0);
    for (int64_t i = parts.begin(part); i < parts.begin(part + 1); ++i) {
      const T* line = gradient + i * m;
      const auto square = [&](int64_t j) {
        const double g = static_cast<double>(line[j] * factor);
        return g * g;
      };
      row_sums[i] = sum_in_lanes(m, square);
      for (int64_t j = 0; j < m; ++j) sums[j] += square(j);
    }
  });
  const auto moment = [&](T before, double squares, int64_t count) {
    const double now = squares / static_cast<double>(count) + o.eps1;
    return static_cast<T>(o.beta2 * static_cast<double>(before) + (1.0 - o.beta2) * now);
  };
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    row[i] = moment(row[i], row_sums[i], m);
    total += static_cast<double>(row[i]);
  }
  // u_ij = g_ij r_i c_j
  T* row_factors = scratch<T>(kRowSums + 4, n);
  T* column_factors = scratch<T>(kColumnSums + 4, m);
  const double row_mean = total / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) row_factors[i] = static_cast<T>(std::sqrt(row_mean / static_cast<double>(row[i])));
  for (int64_t j = 0; j < m; ++j) {
    double sum = 0;
    for (int64_t part = 0; part < parts.count; ++part) sum += column_sums[part * m + j];
    column[j] = moment(column[j], sum, n);
    column_factors[j] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(column[j])));
  }
  double* update_sums = scratch<double>(kUpdateSums, parts.count);
  double* weight_sums = scratch<double>(kWeightSums, parts.count);
  parallel_for(parts.count, [&](int64_t part) {
    double updates = 0;
    double weights = 0;
    for (int64_t i = parts.begin(part); i < parts.begin(part + 1); ++i) {
      const T* line = gradient + i * m;
      const T row_factor = row_factors[i];
      updates += sum_in_lanes(m, [&](int64_t j) {
        const double u = static_cast<double>(line[j] * factor * row_factor * column_factors[j]);
        return u * u;
      });
      if (!o.parameter_scale) continue;
      weights += sum_in_lanes(m, [&](int64_t j) {
        const double x = static_cast<double>(w[i * m + j]);
        return x * x;
      });
    }
    update_sums[part] = updates;
    weight_sums[part] = weights;
  });
  const Step<T> step(o, sum_of(update_sums, parts.count), sum_of(weight_sums, parts.count), n * m, mean);
  for_rows(n, m, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T row_factor = row_factors[i];
      const int64_t first = i * m;
      step.apply(w, first, first + m,
                 [&](int64_t k) { return gradient[k] * factor * row_factor * column_factors[k - first]; });
    }
  });
}

void adafactor(const Tensor& w, const Tensor& row, const Tensor& column, const Tensor& mean, const Tensor& gradient,
               const Tensor& control, const ops::Adafactor& o) {
  check_adafactor(w, row, column, mean, gradient, control);
  if (control.data<double>()[1] == 0) return;
  const int64_t n = w.dim(0);
  const int64_t m = w.dim(1);
  const bool factored = column.defined();
  dispatch("adafactor", w.dtype(), [&](auto type) {
    using T = decltype(type);
    T* means = mean.defined() ? mean.data<T>() : nullptr;
    const T factor = static_cast<T>(control.data<double>()[0]);
    if (factored) {
      update_factored(w.data<T>(), row.data<T>(), column.data<T>(), means, gradient.data<T>(), factor, n, m, o);
    } else {
      update_each(w.data<T>(), row.data<T>(), means, gradient.data<T>(), factor, n * m, o);
    }
  });
}

}  // namespace

void bind_adafactor() {
  ops::adafactor.bind(DeviceKind::cpu, adafactor);
}

}  // namespace quire::cpu
