#include "core/error.h"

#include <algorithm>

namespace quire {

namespace {

bool is_inside_character(std::string_view text, size_t at) {
  return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

}  // namespace

Error::~Error() = default;

std::string shortened(std::string_view text) {
  std::string repeated(text);
  if (text.size() > kLongestQuote) {
    constexpr std::string_view kGap = " ... ";
    constexpr size_t kEnd = 60;
    size_t begin = kLongestQuote - kEnd - kGap.size();
    size_t end = text.size() - kEnd;
    // A UTF-8 character has at most three bytes after its first.
    for (int i = 0; i < 3 && is_inside_character(text, begin); ++i) --begin;
    for (int i = 0; i < 3 && is_inside_character(text, end); ++i) ++end;
    repeated = std::string(text.substr(0, begin)).append(kGap).append(text.substr(end));
  }
  std::replace_if(
      repeated.begin(), repeated.end(), [](unsigned char c) { return c < 0x20U || c == 0x7FU; }, ' ');
  return repeated;
}

}  // namespace quire
