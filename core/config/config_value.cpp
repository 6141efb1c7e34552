#include "core/config/config_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/spelling.h"

namespace quire {

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
  return text;
}

// Reads the spelling of a number from the front. (std::regex would overflow the stack on long text.)
class Spelling {
 public:
  explicit Spelling(std::string_view text) : rest_(text) {}
  bool skip(std::string_view any_of) {
    const bool found = !rest_.empty() && any_of.find(rest_.front()) != std::string_view::npos;
    if (found) rest_.remove_prefix(1);
    return found;
  }
  std::string_view take(std::string_view any_of) {
    const std::string_view taken = rest_.substr(0, std::min(rest_.find_first_not_of(any_of), rest_.size()));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

constexpr std::string_view kDigits = "0123456789";

// Returns true for 1e6, and false for 1.5e6 and 1e-3, which are not written as integers.
bool is_integer(std::string_view text) {
  Spelling spelling(text);
  spelling.skip("-");
  const std::string_view digits = spelling.take(kDigits);
  if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return false;
  if (spelling.rest().empty()) return true;
  if (!spelling.skip("eE")) return false;
  spelling.skip("+");
  const size_t exponent = spelling.take(kDigits).size();
  return (exponent == 1 || exponent == 2) && spelling.rest().empty();
}

bool is_number(std::string_view text) {
  Spelling spelling(text);
  spelling.skip("-");
  const std::string_view digits = spelling.take(kDigits);
  if (digits.size() > 1 && digits.front() == '0') return false;
  const bool has_fraction = spelling.skip(".") && !spelling.take(kDigits).empty();
  if (digits.empty() && !has_fraction) return false;
  if (!spelling.skip("eE")) return spelling.rest().empty();
  spelling.skip("-+");
  return !spelling.take(kDigits).empty() && spelling.rest().empty();
}

bool looks_octal(std::string_view text) {
  Spelling spelling(text);
  spelling.skip("-+");
  if (!spelling.skip("0") || spelling.rest().empty()) return false;
  spelling.skip("o");
  spelling.take("0123456789_");
  return spelling.rest().empty();
}

bool looks_hexadecimal(std::string_view text) {
  Spelling spelling(text);
  spelling.skip("-+");
  return spelling.skip("0") && spelling.skip("xb");
}

bool looks_infinite(std::string_view text) {
  Spelling spelling(text);
  spelling.skip("-+");
  spelling.skip(".");
  return spelling.rest() == "nan" || spelling.rest() == "inf" || spelling.rest() == "infinity";
}

[[noreturn]] void wrong_type(const ConfigNode& node, const ValueContext& context, std::string_view expected,
                             std::string_view hint = {}) {
  config_error(node.location, context.key,
               fmt::format("expects {}, got {}{}{}", expected, node.describe(), hint.empty() ? "" : "; ", hint));
}

// Gives a hint for numbers that other YAML readers would interpret in another way.
void check_number_spelling(const ConfigNode& node, const ValueContext& context, std::string_view expected) {
  if (node.kind != ConfigNode::Kind::scalar || node.quoted) wrong_type(node, context, expected);
  const std::string text = lower(node.text);
  if (looks_octal(text)) {
    wrong_type(node, context, expected, "it looks like an octal number, write it without the leading zero");
  }
  if (looks_hexadecimal(text)) wrong_type(node, context, expected, "write it in decimal");
  if (looks_infinite(text)) wrong_type(node, context, expected, "it must be finite");
}

std::string number_text(double value) {
  return write_value(value).text;
}

void check_range(const ConfigNode& node, const ValueContext& context, double value) {
  const FieldInfo& info = context.info;
  const bool too_small = info.min && (info.min_exclusive ? value <= *info.min : value < *info.min);
  const bool too_big = info.max && value > *info.max;
  if (!too_small && !too_big) return;
  std::string bounds;
  if (info.min) bounds = fmt::format("{} {}", info.min_exclusive ? "above" : "at least", number_text(*info.min));
  if (info.max) bounds += fmt::format("{}at most {}", bounds.empty() ? "" : " and ", number_text(*info.max));
  const bool none = value == 0 && too_small && !info.at_zero.empty();
  config_error(
      node.location, context.key,
      fmt::format("must be {}, got {}{}{}", bounds, shortened(node.text), none ? "; " : "", none ? info.at_zero : ""));
}

}  // namespace

void config_error(const ConfigLocation& place, std::string_view key, std::string_view message) {
  const std::string whole(message);  // not shortened again: the values in it are short already
  if (key.empty()) fail(ErrorKind::config, "{}: {}", place.to_string(), whole.c_str());
  fail(ErrorKind::config, "{}: {}: {}", place.to_string(), key, whole.c_str());
}

void read_value(const ConfigNode& node, const ValueContext& context, bool& value) {
  const bool is_unquoted = node.kind == ConfigNode::Kind::scalar && !node.quoted;
  if (is_unquoted && (node.text == "true" || node.text == "false")) {
    value = node.text == "true";
    return;
  }
  const std::string text = is_unquoted ? lower(node.text) : "";
  const bool means_true = text == "yes" || text == "on" || text == "y" || text == "true" || text == "1";
  const bool means_false = text == "no" || text == "off" || text == "n" || text == "false" || text == "0";
  wrong_type(node, context, "true or false", means_true ? "write true" : means_false ? "write false" : "");
}

void read_value(const ConfigNode& node, const ValueContext& context, int64_t& value) {
  check_number_spelling(node, context, "an integer");
  const std::string& text = node.text;
  if (!is_integer(text)) wrong_type(node, context, "an integer");
  const size_t exponent = text.find_first_of("eE");
  std::string digits = text.substr(0, exponent);
  if (exponent != std::string::npos) digits.append(std::stoul(text.substr(exponent + 1)), '0');
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{})
    config_error(node.location, context.key, fmt::format("{} does not fit 64 bits", node.describe()));
  check_range(node, context, static_cast<double>(value));
  if (value > kLargestInteger || value < -kLargestInteger) {
    const std::string bound =
        fmt::format("{} {}{}", value > 0 ? "most" : "least", value > 0 ? "" : "-", kLargestInteger);
    config_error(node.location, context.key, fmt::format("must be at {}, got {}", bound, node.text));
  }
}

void read_value(const ConfigNode& node, const ValueContext& context, double& value) {
  check_number_spelling(node, context, "a number");
  const std::string& text = node.text;
  if (!is_number(text)) wrong_type(node, context, "a number");
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) {
    config_error(node.location, context.key,
                 fmt::format("{} does not fit a 64-bit floating-point number", node.describe()));
  }
  check_range(node, context, value);
}

void read_value(const ConfigNode& node, const ValueContext& context, std::string& value) {
  if (node.kind != ConfigNode::Kind::scalar) wrong_type(node, context, "text");
  value = node.text;
  if (context.info.path && !value.empty() && !node.location.folder.empty()) {
    value = (std::filesystem::path(node.location.folder) / value).lexically_normal().string();
  }
}

void read_value(const ConfigNode& node, const ValueContext& context, Duration& value) {
  constexpr std::string_view kExpected = "a duration such as 3h30m, 90s or a number of seconds";
  if (node.kind != ConfigNode::Kind::scalar || node.quoted) wrong_type(node, context, kExpected);
  Spelling spelling(node.text);
  int64_t total = 0;
  constexpr std::pair<std::string_view, int64_t> kUnits[] = {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}};
  size_t next = 0;  // units come in the order from long to short, each at most once
  do {
    const std::string_view digits = spelling.take(kDigits);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || error != std::errc{} || number > 1'000'000'000) wrong_type(node, context, kExpected);
    if (spelling.rest().empty() && next == 0) {
      total = number;
      break;
    }
    while (next < std::size(kUnits) && !spelling.skip(kUnits[next].first)) ++next;
    if (next == std::size(kUnits)) wrong_type(node, context, kExpected);
    total += number * kUnits[next++].second;
  } while (!spelling.rest().empty());
  check_range(node, context, static_cast<double>(total));
  value.seconds = total;
}

size_t read_choice(const ConfigNode& node, const ValueContext& context, std::span<const std::string_view> choices,
                   OtherWords meant) {
  if (node.kind == ConfigNode::Kind::scalar) {
    const auto found = std::find(choices.begin(), choices.end(), node.text);
    if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  }
  const auto translated =
      std::find_if(meant.begin(), meant.end(), [&](const auto& pair) { return pair.first == lower(node.text); });
  const std::vector<std::string> names(choices.begin(), choices.end());
  const std::string nearest =
      translated != meant.end() ? std::string(translated->second) : nearest_name(names, lower(node.text));
  wrong_type(node, context, fmt::format("one of {}", fmt::join(choices, ", ")),
             nearest.empty() ? "" : fmt::format("did you mean {}?", nearest));
}

void expect_list(const ConfigNode& node, const ValueContext& context) {
  if (node.kind == ConfigNode::Kind::list) return;
  const bool names_entry = node.kind == ConfigNode::Kind::map && !node.entries.empty() &&
                           node.entries.front().key.find_first_not_of(kDigits) == std::string::npos;
  if (names_entry) {
    config_error(node.location, context.key,
                 fmt::format("there is no list to take entry {} of; give the whole list", node.entries.front().key));
  }
  wrong_type(node, context, "a list such as [a, b]");
}

bool is_none(const ConfigNode& node) {
  return node.kind == ConfigNode::Kind::null ||
         (node.kind == ConfigNode::Kind::scalar && !node.quoted && node.text == "none");
}

ConfigNode write_value(bool value) {
  return ConfigNode::scalar(value ? "true" : "false");
}

ConfigNode write_value(int64_t value) {
  return ConfigNode::scalar(std::to_string(value));
}

ConfigNode write_value(double value) {
  QUIRE_CHECK(std::isfinite(value), "configuration: {} cannot be written", value);
  std::array<char, 32> buffer{};
  // Numbers are written without an exponent, as people do (0.0005, 1000000), when that takes at most this many
  // characters.
  constexpr size_t kReadable = 9;
  auto written = std::to_chars(buffer.data(), buffer.data() + kReadable, value, std::chars_format::fixed);
  if (written.ec != std::errc{}) written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return ConfigNode::scalar(std::string(buffer.data(), written.ptr));
}

ConfigNode write_value(const Duration& value) {
  std::string text;
  if (value.seconds >= 3600) text += fmt::format("{}h", value.seconds / 3600);
  if (value.seconds / 60 % 60 != 0) text += fmt::format("{}m", value.seconds / 60 % 60);
  if (value.seconds % 60 != 0 || text.empty()) text += fmt::format("{}s", value.seconds % 60);
  return ConfigNode::scalar(text);
}

ConfigNode write_value(const std::string& value) {
  static constexpr std::array<std::string_view, 11> kReserved{"true", "false", "yes", "no", "on", "off",
                                                              "null", "none",  "nan", "y",  "n"};
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/' || c == '_';
  };
  const bool is_word = !value.empty() && is_letter(value.front()) &&
                       std::find(kReserved.begin(), kReserved.end(), lower(value)) == kReserved.end();
  return ConfigNode::scalar(value, !is_word);
}

}  // namespace quire
