#include "layers/visibility.h"

#include <algorithm>
#include <cmath>

namespace quire {

std::vector<int32_t> first_visible(const Batch& batch, std::span<const int64_t> carried,
                                   std::optional<int64_t> window) {
  std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length));
  for (int64_t r = 0; r < batch.rows; ++r) {
    int64_t low = 0;
    int32_t current = -1;
    for (int64_t t = 0; t < batch.length; ++t) {
      const auto at = static_cast<size_t>(batch.at(r, t));
      const int32_t segment = batch.segment[at];
      if (segment < 0) {
        first[at] = static_cast<int32_t>(batch.length + 1);
        continue;
      }
      if (segment != current) {
        current = segment;
        low = segment == 0 ? t - carried[static_cast<size_t>(r)] : t;
      }
      first[at] = static_cast<int32_t>(window ? std::max(low, t - *window) : low);
    }
  }
  return first;
}

int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t offset = 0;
  int64_t n = std::max<int64_t>(-relative, 0);
  if (bidirectional) {
    buckets /= 2;
    if (relative > 0) offset = buckets;
    n = std::abs(relative);
  }
  const int64_t exact = buckets / 2;
  if (n < exact) return offset + n;
  const double fraction = std::log(static_cast<double>(n) / static_cast<double>(exact) + 0x1p-23) /
                          std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const auto beyond = static_cast<int64_t>(std::floor(fraction * static_cast<double>(buckets - exact)));
  return offset + std::min(buckets - 1, exact + beyond);
}

}  // namespace quire
