#include "data/sources/text_units.h"

#include <cstdint>

namespace quire {

namespace {

bool continues_character(char c) {
  return (static_cast<uint8_t>(c) & 0xC0U) == 0x80U;
}

}  // namespace

size_t first_unit(std::string_view text) {
  const size_t newline = text.substr(0, kLongestUnit + 1).find('\n');
  if (newline != std::string_view::npos) return newline + 1;
  if (text.size() <= kLongestUnit) return text.size();
  const size_t space = text.substr(0, kLongestUnit + 1).rfind(' ');
  if (space != std::string_view::npos && space > 0) return space;
  size_t end = kLongestUnit;
  // A character has at most three bytes after the first; longer runs are not UTF-8 and may be cut anywhere.
  for (int i = 0; i < 3 && continues_character(text[end]); ++i) --end;
  return end;
}

size_t whole_units(std::string_view text) {
  const size_t newline = text.rfind('\n');
  size_t end = newline == std::string_view::npos ? 0 : newline + 1;
  while (text.size() - end > kLongestUnit) end += first_unit(text.substr(end));
  return end;
}

}  // namespace quire
