#include "core/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace quire {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      cost[i][j] =
          std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string nearest_name(std::span<const std::string> names, std::string_view misspelt) {
  constexpr size_t kLongest = 100;  // longer names are skipped: the time grows with the square of the length
  if (misspelt.size() > kLongest) return "";
  std::string nearest;
  size_t min_distance = 2 + misspelt.size() / 3;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(name, misspelt);
    if (distance >= min_distance) continue;
    min_distance = distance;
    nearest = name;
  }
  return nearest;
}

std::string did_you_mean(std::span<const std::string> names, std::string_view misspelt) {
  const std::string nearest = nearest_name(names, misspelt);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

}  // namespace quire
