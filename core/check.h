// QUIRE_CHECK and fail(): included by source files only, so that headers for nvcc stay free of fmt.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace quire {

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(kind, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace quire

// Checks internal consistency at a public entry and throws Error(internal). The message names the operation, gives the
// values and hints at the fix.
#define QUIRE_CHECK(condition, ...)                                                                 \
  do {                                                                                              \
    if (!(condition)) throw ::quire::Error(::quire::ErrorKind::internal, fmt::format(__VA_ARGS__)); \
  } while (false)
