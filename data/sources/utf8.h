// Checks UTF-8 that arrives in chunks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// What some editors put in front of UTF-8; it is no part of what a file says.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Utf8Validator {
 public:
  // Byte offset, from the beginning of the stream, of the first sequence that is not UTF-8. A sequence cut by the end
  // of the chunk is decided by the next call. After an error the validator is used no more.
  std::optional<int64_t> feed(std::string_view chunk);
  // At the end of the stream: a sequence that was never completed is invalid.
  std::optional<int64_t> finish() const;

 private:
  std::string pending_;   // the beginning of a sequence, at most three bytes
  int64_t position_ = 0;  // of the first byte not yet accepted
};

}  // namespace quire
