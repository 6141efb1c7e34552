#include "trainers/cli/link_speed.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace quire {

namespace {

using Unit = std::pair<std::string_view, double>;
constexpr auto kBandwidths = std::to_array<Unit>(
    {{"kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}});
constexpr auto kTimes = std::to_array<Unit>({{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});

// Parses a number above 0 followed, without a space, by one of the units.
std::optional<double> read_amount(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(number) || number <= 0) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const auto& [name, factor] : units) {
    if (unit == name) return number * factor;
  }
  return std::nullopt;
}

std::optional<Link> try_link(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  const std::optional<double> bandwidth = read_amount(text.substr(0, comma), kBandwidths);
  const std::optional<double> latency = read_amount(text.substr(comma + 1), kTimes);
  if (!bandwidth || !latency) return std::nullopt;
  return Link{*bandwidth, *latency};
}

}  // namespace

std::string link_complaint(const std::string& text) {
  if (try_link(text)) return {};
  return fmt::format("{} is no link; give bandwidth and latency, such as 400Gb/s,14us (bits) or 50GB/s,14us (bytes)",
                     text);
}

std::string latency_complaint(const std::string& text) {
  if (read_amount(text, kTimes)) return {};
  return fmt::format("{} is no latency; give a time above 0, such as 50us", text);
}

Link read_link(const std::string& text) {
  return try_link(text).value();
}

double read_latency(const std::string& text) {
  return read_amount(text, kTimes).value();
}

}  // namespace quire
