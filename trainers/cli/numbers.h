// Checks for numbers on the command line, which CLI11 reads with strtoull and strtold: too large a number becomes
// another one, and "nan" lies in every range.
#pragma once

#include <string>

namespace quire {

// Both return what is wrong with the text; empty when nothing is.
std::string seed_number(const std::string& text);   // digits only, below 2^64
std::string finite_number(const std::string& text);  // not nan, and within the range of double

}  // namespace quire
