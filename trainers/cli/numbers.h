// Checks for numbers on the command line. CLI11 reads them with strtoull and strtold: a number that is too large
// becomes another one, and "nan" lies in every range. Each check returns the fault of a text; empty when there is none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace quire {

// Every option whose variable is a uint64_t or a double has one of these two checks (verb.cpp).
std::string seed_number(const std::string& text);    // digits only, below 2^64
std::string finite_number(const std::string& text);  // not nan, and within the range of double
std::string number_in_range(const std::string& text, double min, double max);

// For Option::check: the option takes a whole number from `min` to `max`. For 1e3 or 4k the message says how to
// write the number.
std::function<std::string(const std::string&)> whole_number(int64_t min, int64_t max);

}  // namespace quire
