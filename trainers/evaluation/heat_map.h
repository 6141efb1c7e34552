// A table of shares as an SVG picture: a coloured cell for each, with its value in per cent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct HeatMap {
  std::string title;
  std::string columns_title;
  std::string rows_title;
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<double> values;  // [rows, columns], from 0 to 1
};

// How a picture begins: an earlier one may be replaced.
inline constexpr std::string_view kHeatMapMark = "<!-- a heat map of quire -->\n";

std::string to_svg(const HeatMap& map);

}  // namespace quire
