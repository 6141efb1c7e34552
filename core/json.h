// JSON that may have been written by anyone, or damaged.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace quire {

// Copying and printing a value recurse, so its depth has a limit, far beyond that of what people write.
inline constexpr int kDeepestJson = 256;

// Parses nlohmann::json or nlohmann::ordered_json. What is not JSON, or nested too deep, is a discarded value: it is no
// object, and at() throws json::exception, as for a key that is missing. `reason`, if given, receives what is wrong.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, std::string* reason = nullptr);

extern template nlohmann::json parse_json(std::string_view text, std::string* reason);
extern template nlohmann::ordered_json parse_json(std::string_view text, std::string* reason);

// Larger integers are not the same number for every reader of JSON.
inline constexpr int64_t kLargestJsonInteger = int64_t{1} << 53;

// A value that is an integer within [least, kLargestJsonInteger], else json::exception; nlohmann's own get() takes
// true, 1.5 and 1e300 for integers.
template <class Json>
int64_t json_integer(const Json& value, int64_t least = 0) {
  const auto integer = value.template get_ref<const int64_t&>();  // negative for what does not fit
  if (integer >= least && integer <= kLargestJsonInteger) return integer;
  throw Json::out_of_range::create(401, "integer out of range", nullptr);
}

}  // namespace quire
