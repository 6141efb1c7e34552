// QUIRE_CHECK and fail(). Only source files include this header, so that headers for nvcc stay free of fmt.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "core/error.h"

namespace quire {

// Returns the text that a message shows for an argument. A std::string may come from a file or a command line and have
// any length, so it is shortened. A C string is not: it is the text of another error or of this program.
template <typename T>
decltype(auto) in_message(const T& value) {
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>) {
    return shortened(value);
  } else {
    return (value);
  }
}

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(fmt::runtime(fmt::string_view(text)), in_message(args)...));
}

}  // namespace quire

// Checks internal consistency at a public entry and throws Error(internal). The message names the operation, gives the
// values and hints at the fix.
#define QUIRE_CHECK(condition, ...)                                                                 \
  do {                                                                                              \
    if (!(condition)) throw ::quire::Error(::quire::ErrorKind::internal, fmt::format(__VA_ARGS__)); \
  } while (false)
