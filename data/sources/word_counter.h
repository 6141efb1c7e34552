// Counts words of text that arrives in pieces: runs of characters that are not white space. White space is defined as
// in Python's str.split(): Unicode's White_Space and U+001C to U+001F.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// The name of this rule in a corpus. A corpus without one counted words between ASCII white space.
inline constexpr const char* kWordRule = "unicode";
inline constexpr const char* kFormerWordRule = "ascii";

class WordCounter {
 public:
  void feed(std::string_view bytes);
  // Returns the number of words fed so far. Bytes that are not UTF-8 belong to words.
  int64_t words() const;

 private:
  void take(bool space);

  int64_t words_ = 0;
  bool in_word_ = false;
  std::string pending_;  // possible beginning of a multi-byte space
};

}  // namespace quire
