// Checks for numbers on the command line, which CLI11 reads with strtoull and strtold: too large a number becomes
// another one, and "nan" lies in every range. Each says what is wrong with a text; empty when nothing is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace quire {

// Every option whose variable is a uint64_t or a double has one of these two (verb.cpp).
std::string seed_number(const std::string& text);    // digits only, below 2^64
std::string finite_number(const std::string& text);  // not nan, and within the range of double
std::string number_in_range(const std::string& text, double least, double most);

// For Option::check: the option takes a whole number from `least` to `most`. The message says what to write for
// 1e3 or 4k.
std::function<std::string(const std::string&)> whole_number(int64_t least, int64_t most);

}  // namespace quire
