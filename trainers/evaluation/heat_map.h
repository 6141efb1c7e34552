// Draws a table of shares as an SVG picture: a coloured cell for each share, with its value in per cent.
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

// The first line of a picture; a file that begins with it may be replaced.
inline constexpr std::string_view kHeatMapMark = "<!-- a heat map of quire -->\n";

std::string to_svg(const HeatMap& map);

}  // namespace quire
