#include "trainers/cli/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

namespace quire {

namespace {

// Returns the number that a text such as 1e3, 4k or 1M means.
std::optional<int64_t> meant_number(const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string rest = end;
  if (end == text.c_str() || rest.size() > 1) return std::nullopt;
  if (rest == "k" || rest == "K") value *= 1024;
  if (rest == "M") value *= 1024 * 1024;
  const bool known = rest.empty() || rest == "k" || rest == "K" || rest == "M";
  if (!known || value != std::floor(value) || std::abs(value) > 1e15) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

std::string seed_number(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size()) return {};
  return fmt::format("{} is not a whole number from 0 to {}", text, std::numeric_limits<uint64_t>::max());
}

std::string finite_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && std::isfinite(value)) return {};
  return fmt::format("{} is not a finite number", text);
}

std::string number_in_range(const std::string& text, double min, double max) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return fmt::format("{} is not a number", text);
  if (value >= min && value <= max) return {};
  return fmt::format("must be at least {} and at most {}, got {}", min, max, text);
}

std::function<std::string(const std::string&)> whole_number(int64_t min, int64_t max) {
  return [min, max](const std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      const std::optional<int64_t> meant = meant_number(text);
      return meant ? fmt::format("expects a whole number, got '{}'; write {}", text, *meant)
                   : fmt::format("expects a whole number, got '{}'", text);
    }
    if (error == std::errc{} && value >= min && value <= max) return "";
    return fmt::format("must be at least {} and at most {}, got {}", min, max, text);
  };
}

}  // namespace quire
