// Reads JSON that may have been written by anyone, or damaged.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire {

// The largest depth of a value, far beyond what people write. Copying and printing recurse, so depth needs a limit.
inline constexpr int kDeepestJson = 256;

// Parses nlohmann::json or nlohmann::ordered_json. Text that is not JSON, or is nested too deep, gives a discarded
// value: it is no object, and at() throws json::exception, as for a missing key. `reason`, if given, receives the
// cause.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::string* reason = nullptr);

extern template nlohmann::json parse_json(std::string_view text, std::string* reason);
extern template nlohmann::ordered_json parse_json(std::string_view text, std::string* reason);

// As parse_json; text in which an object holds a key twice is discarded, too. Programs differ in which one they read.
nlohmann::json parse_json_of_unique_keys(std::string_view text, std::string& reason);

// Some readers of JSON round larger integers.
inline constexpr int64_t kLargestJsonInteger = int64_t{1} << 53;

// Returns an integer within [min, kLargestJsonInteger], else throws json::exception. nlohmann's own get() takes true,
// 1.5 and 1e300 for integers.
template <class Json>
int64_t json_integer(const Json& value, int64_t min = 0) {
  const auto integer = value.template get_ref<const int64_t&>();  // negative for values that do not fit
  if (integer >= min && integer <= kLargestJsonInteger) return integer;
  throw Json::out_of_range::create(401, "integer out of range", nullptr);
}

}  // namespace quire
