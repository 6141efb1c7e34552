#include "trainers/evaluation/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"

namespace quire {

namespace {

using Colour = std::array<double, 3>;

// Colours go from pale yellow over green to dark blue with decreasing lightness, so that they are also readable in
// grey.
constexpr std::array<Colour, 4> kColours{Colour{255, 250, 205}, Colour{161, 218, 150}, Colour{65, 150, 180},
                                         Colour{37, 52, 120}};

Colour colour_of(double value) {
  const double at = std::clamp(value, 0.0, 1.0) * (kColours.size() - 1);
  const size_t below = std::min(static_cast<size_t>(at), kColours.size() - 2);
  Colour colour{};
  for (size_t i = 0; i < 3; ++i) {
    const double part = at - static_cast<double>(below);
    colour[i] = std::round(kColours[below][i] + part * (kColours[below + 1][i] - kColours[below][i]));
  }
  return colour;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string label(double x, double y, const std::string& anchor, const std::string& more, const std::string& text) {
  return fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     escaped(text));
}

}  // namespace

std::string to_svg(const HeatMap& map) {
  QUIRE_CHECK(map.values.size() == map.rows.size() * map.columns.size(), "heat map: {} values for {} x {} cells",
              map.values.size(), map.rows.size(), map.columns.size());
  constexpr double kWidth = 64;  // width of a cell
  constexpr double kHeight = 36;
  constexpr double kLeft = 84;
  constexpr double kTop = 44;
  const double right = kLeft + kWidth * static_cast<double>(map.columns.size());
  const double bottom = kTop + kHeight * static_cast<double>(map.rows.size());
  // A title may be wider than the cells; a letter of this size takes about 7 units.
  const double width = std::max(right + 16, 24 + 7.2 * static_cast<double>(map.title.size()));
  std::string svg = std::string(kHeatMapMark);
  svg += fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n",
      width, bottom + 52);
  svg += label(12, 24, "start", " font-weight=\"bold\"", map.title);
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = kTop + kHeight * static_cast<double>(row);
    svg += label(kLeft - 8, y + kHeight / 2 + 5, "end", "", map.rows[row]);
    for (size_t column = 0; column < map.columns.size(); ++column) {
      const double x = kLeft + kWidth * static_cast<double>(column);
      const double value = map.values[row * map.columns.size() + column];
      const Colour colour = colour_of(value);
      svg += fmt::format(
          "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" fill=\"rgb({:.0f},{:.0f},{:.0f})\" "
          "stroke=\"#fff\"/>\n",
          x, y, kWidth, kHeight, colour[0], colour[1], colour[2]);
      svg += label(x + kWidth / 2, y + kHeight / 2 + 5, "middle", value > 0.55 ? " fill=\"#fff\"" : "",
                   fmt::format("{:.0f} %", 100 * value));
    }
  }
  for (size_t column = 0; column < map.columns.size(); ++column) {
    svg += label(kLeft + kWidth * (static_cast<double>(column) + 0.5), bottom + 18, "middle", "", map.columns[column]);
  }
  svg += label((kLeft + right) / 2, bottom + 40, "middle", "", map.columns_title);
  const double middle = (kTop + bottom) / 2;
  svg += label(18, middle, "middle", fmt::format(" transform=\"rotate(-90 18 {:.0f})\"", middle), map.rows_title);
  return svg + "</svg>\n";
}

}  // namespace quire
