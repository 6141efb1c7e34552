// Options of the command line that count something.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace quire {

// For Option::check: the option takes a whole number from `least` to `most`. The message says what to write for
// 1e3 or 4k.
std::function<std::string(const std::string&)> whole_number(int64_t least, int64_t most);

}  // namespace quire
