#include "trainers/report/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire {

namespace {

// Says whether bands would be seen: a chart is some hundreds of pixels high.
bool is_band_visible(const ReducedCurve& curve) {
  constexpr double kShare = 0.002;
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  double widest = 0;
  for (size_t i = 0; i < curve.mean.size(); ++i) {
    if (std::isnan(curve.mean[i])) continue;
    low = std::min(low, curve.low[i]);
    high = std::max(high, curve.high[i]);
    widest = std::max(widest, curve.high[i] - curve.low[i]);
  }
  return widest > kShare * (high - low);
}

}  // namespace

Buckets buckets_of(size_t rows, size_t count) {
  Buckets buckets;
  if (rows <= count) {
    for (size_t row = 0; row < rows; ++row) buckets.ends.push_back(row + 1);
    return buckets;
  }
  const size_t geometric = count / 5;
  const size_t even = count - geometric;
  for (size_t i = 1; i <= even; ++i) buckets.ends.push_back(rows * i / even);
  for (size_t i = 0; i < geometric; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(geometric);
    buckets.ends.push_back(static_cast<size_t>(std::pow(static_cast<double>(rows), share)));
  }
  std::sort(buckets.ends.begin(), buckets.ends.end());
  buckets.ends.erase(std::unique(buckets.ends.begin(), buckets.ends.end()), buckets.ends.end());
  return buckets;
}

ReducedCurve reduced_curve(const std::vector<double>& values, const Buckets& buckets) {
  ReducedCurve curve;
  size_t row = 0;
  for (const size_t end : buckets.ends) {
    double sum = 0;
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    int count = 0;
    for (; row < end; ++row) {
      const double value = values[row];
      if (std::isnan(value)) continue;
      sum += value;
      low = std::min(low, value);
      high = std::max(high, value);
      ++count;
    }
    const double none = std::numeric_limits<double>::quiet_NaN();
    curve.mean.push_back(count > 0 ? sum / count : none);
    curve.low.push_back(count > 0 ? low : none);
    curve.high.push_back(count > 0 ? high : none);
  }
  if (is_band_visible(curve)) return curve;
  curve.low.clear();
  curve.high.clear();
  return curve;
}

std::vector<double> last_values(const std::vector<double>& values, const Buckets& buckets) {
  std::vector<double> last;
  for (const size_t end : buckets.ends) last.push_back(values[end - 1]);
  return last;
}

}  // namespace quire
