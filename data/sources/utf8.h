// Checks UTF-8 that arrives in chunks, and finds where it can be cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// The mark that some editors put in front of UTF-8; it is not part of the text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Utf8Validator {
 public:
  // Returns the byte offset, from the beginning of the stream, of the first sequence that is not UTF-8. A sequence cut
  // by the end of the chunk is decided by the next call. After an error the validator must not be used again.
  std::optional<int64_t> feed(std::string_view chunk);
  // Ends the stream: returns the offset of a sequence that was never completed.
  std::optional<int64_t> finish() const;

 private:
  std::string pending_;   // the beginning of a sequence, at most three bytes
  int64_t position_ = 0;  // offset of the first byte not yet accepted
};

// Returns whether a byte of a sequence is not its first.
inline bool is_within_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

// Returns how many bytes at the end of the text are the beginning of a sequence that is not complete.
size_t unfinished_bytes(std::string_view text);

}  // namespace quire
