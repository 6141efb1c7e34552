// Reduces curves of hundreds of thousands of points to what a screen shows, without losing a peak.
#pragma once

#include <cstddef>
#include <vector>

namespace quire {

// Consecutive rows that become one point: bucket i ends before row ends[i], where the next one begins.
struct Buckets {
  std::vector<size_t> ends;
};

// Returns at most `count` buckets. Four fifths of their ends are evenly spaced and the rest geometrically, so that the
// beginning can be seen on a logarithmic axis, too. With at most `count` rows each row has a bucket.
Buckets buckets_of(size_t rows, size_t count);

// Points of a curve; NaN where a bucket has no number.
struct ReducedCurve {
  std::vector<double> mean;
  // The smallest and the largest number of each bucket; empty where they would not be seen beside the mean.
  std::vector<double> low;
  std::vector<double> high;
};
ReducedCurve reduced_curve(const std::vector<double>& values, const Buckets& buckets);

// Returns the value of the last row of each bucket.
std::vector<double> last_values(const std::vector<double>& values, const Buckets& buckets);

}  // namespace quire
