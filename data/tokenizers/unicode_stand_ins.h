// Patterns of tokenizers are written for the newest Unicode. PCRE2 of Debian 12 knows Unicode 14, so it is given a text
// in which a newer character is replaced by an older one of the same class and the same number of bytes.
#pragma once

#include <string>
#include <string_view>

namespace quire {

// Returns the replacement in UTF-8; an empty text for a character that PCRE2 classifies as tokenizers do.
std::string_view stand_in_of(char32_t character);

// A text for PCRE2, byte for byte as long as the one it stands for.
struct PatternSubject {
  std::string_view text;
  bool is_valid = true;  // the text it stands for is UTF-8
};
// Returns the text with its stand-ins; each byte that is not UTF-8 is U+0001, neither space nor letter nor digit. The
// result points into `text` where nothing is replaced, else into `buffer`.
PatternSubject pattern_subject(std::string_view text, std::string& buffer);

}  // namespace quire
