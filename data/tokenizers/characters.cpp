#include "data/tokenizers/characters.h"

#include <utf8proc.h>

#include "data/tokenizers/unicode_stand_ins.h"

namespace quire {

namespace {

// Returns the category of a character, also of one that is newer than utf8proc.
utf8proc_category_t category_of(char32_t character) {
  const std::string_view stand_in = stand_in_of(character);
  return utf8proc_category(static_cast<utf8proc_int32_t>(stand_in.empty() ? character : character_at(stand_in, 0)));
}

}  // namespace

char32_t character_at(std::string_view text, size_t at) {
  utf8proc_int32_t character = 0;
  const auto* begin = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
  const auto size = static_cast<utf8proc_ssize_t>(text.size() - at);
  return utf8proc_iterate(begin, size, &character) > 0 ? static_cast<char32_t>(character) : 0;
}

size_t character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0U) == 0x80U) --begin;
  return begin;
}

bool is_word_character(char32_t character) {
  switch (category_of(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return character == 0x200C || character == 0x200D;  // joiners
  }
}

bool is_space_character(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  if (character == 0x85) return true;
  switch (category_of(character)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return true;
    default:
      return false;
  }
}

bool is_letter_or_number(char32_t character) {
  const auto category = category_of(character);
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

}  // namespace quire
