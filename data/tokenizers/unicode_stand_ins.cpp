#include "data/tokenizers/unicode_stand_ins.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "core/check.h"

namespace quire {

namespace {

enum class CharacterKind : uint8_t {
  upper,
  lower,
  modifier,
  letter,
  han,
  mark,
  spacing_mark,
  digit,
  number,
  punctuation,
  symbol,
  format,
};

struct NewerCharacters {
  char32_t first;
  char32_t last;
  CharacterKind kind;
};

using Kind = CharacterKind;

// Characters that Unicode 16 classifies and PCRE2 10.42 (Unicode 14) does not, from the classes of the package
// `tokenizers` 0.23.3; and U+180E, which PCRE2 alone counts as a space.
constexpr NewerCharacters kNewerCharacters[] = {
    {0x897, 0x897, Kind::mark},
    {0xCF3, 0xCF3, Kind::spacing_mark},
    {0xECE, 0xECE, Kind::mark},
    {0x180E, 0x180E, Kind::format},
    {0x1B4E, 0x1B4F, Kind::punctuation},
    {0x1B7F, 0x1B7F, Kind::punctuation},
    {0x1C89, 0x1C89, Kind::upper},
    {0x1C8A, 0x1C8A, Kind::lower},
    {0x2427, 0x2429, Kind::symbol},
    {0x2FFC, 0x2FFF, Kind::symbol},
    {0x31E4, 0x31E5, Kind::symbol},
    {0x31EF, 0x31EF, Kind::symbol},
    {0xA7CB, 0xA7CC, Kind::upper},
    {0xA7CD, 0xA7CD, Kind::lower},
    {0xA7DA, 0xA7DA, Kind::upper},
    {0xA7DB, 0xA7DB, Kind::lower},
    {0xA7DC, 0xA7DC, Kind::upper},
    {0x105C0, 0x105F3, Kind::letter},
    {0x10D40, 0x10D49, Kind::digit},
    {0x10D4A, 0x10D4D, Kind::letter},
    {0x10D4E, 0x10D4E, Kind::modifier},
    {0x10D4F, 0x10D4F, Kind::letter},
    {0x10D50, 0x10D65, Kind::upper},
    {0x10D69, 0x10D6D, Kind::mark},
    {0x10D6E, 0x10D6E, Kind::punctuation},
    {0x10D6F, 0x10D6F, Kind::modifier},
    {0x10D70, 0x10D85, Kind::lower},
    {0x10D8E, 0x10D8F, Kind::symbol},
    {0x10EC2, 0x10EC4, Kind::letter},
    {0x10EFC, 0x10EFF, Kind::mark},
    {0x1123F, 0x11240, Kind::letter},
    {0x11241, 0x11241, Kind::mark},
    {0x11380, 0x11389, Kind::letter},
    {0x1138B, 0x1138B, Kind::letter},
    {0x1138E, 0x1138E, Kind::letter},
    {0x11390, 0x113B5, Kind::letter},
    {0x113B7, 0x113B7, Kind::letter},
    {0x113B8, 0x113BA, Kind::spacing_mark},
    {0x113BB, 0x113C0, Kind::mark},
    {0x113C2, 0x113C2, Kind::spacing_mark},
    {0x113C5, 0x113C5, Kind::spacing_mark},
    {0x113C7, 0x113CA, Kind::spacing_mark},
    {0x113CC, 0x113CD, Kind::spacing_mark},
    {0x113CE, 0x113CE, Kind::mark},
    {0x113CF, 0x113CF, Kind::spacing_mark},
    {0x113D0, 0x113D0, Kind::mark},
    {0x113D1, 0x113D1, Kind::letter},
    {0x113D2, 0x113D2, Kind::mark},
    {0x113D3, 0x113D3, Kind::letter},
    {0x113D4, 0x113D5, Kind::punctuation},
    {0x113D7, 0x113D8, Kind::punctuation},
    {0x113E1, 0x113E2, Kind::mark},
    {0x116D0, 0x116E3, Kind::digit},
    {0x1171E, 0x1171E, Kind::spacing_mark},
    {0x11B00, 0x11B09, Kind::punctuation},
    {0x11BC0, 0x11BE0, Kind::letter},
    {0x11BE1, 0x11BE1, Kind::punctuation},
    {0x11BF0, 0x11BF9, Kind::digit},
    {0x11F00, 0x11F01, Kind::mark},
    {0x11F02, 0x11F02, Kind::letter},
    {0x11F03, 0x11F03, Kind::spacing_mark},
    {0x11F04, 0x11F10, Kind::letter},
    {0x11F12, 0x11F33, Kind::letter},
    {0x11F34, 0x11F35, Kind::spacing_mark},
    {0x11F36, 0x11F3A, Kind::mark},
    {0x11F3E, 0x11F3F, Kind::spacing_mark},
    {0x11F40, 0x11F40, Kind::mark},
    {0x11F41, 0x11F41, Kind::spacing_mark},
    {0x11F42, 0x11F42, Kind::mark},
    {0x11F43, 0x11F4F, Kind::punctuation},
    {0x11F50, 0x11F59, Kind::digit},
    {0x11F5A, 0x11F5A, Kind::mark},
    {0x1342F, 0x1342F, Kind::letter},
    {0x13440, 0x13440, Kind::mark},
    {0x13441, 0x13446, Kind::letter},
    {0x13447, 0x13455, Kind::mark},
    {0x13460, 0x143FA, Kind::letter},
    {0x16100, 0x1611D, Kind::letter},
    {0x1611E, 0x16129, Kind::mark},
    {0x1612A, 0x1612C, Kind::spacing_mark},
    {0x1612D, 0x1612F, Kind::mark},
    {0x16130, 0x16139, Kind::digit},
    {0x16D40, 0x16D42, Kind::modifier},
    {0x16D43, 0x16D6A, Kind::letter},
    {0x16D6B, 0x16D6C, Kind::modifier},
    {0x16D6D, 0x16D6F, Kind::punctuation},
    {0x16D70, 0x16D79, Kind::digit},
    {0x18CFF, 0x18CFF, Kind::letter},
    {0x1B132, 0x1B132, Kind::letter},
    {0x1B155, 0x1B155, Kind::letter},
    {0x1CC00, 0x1CCEF, Kind::symbol},
    {0x1CCF0, 0x1CCF9, Kind::digit},
    {0x1CD00, 0x1CEB3, Kind::symbol},
    {0x1D2C0, 0x1D2D3, Kind::number},
    {0x1DF25, 0x1DF2A, Kind::lower},
    {0x1E030, 0x1E06D, Kind::modifier},
    {0x1E08F, 0x1E08F, Kind::mark},
    {0x1E4D0, 0x1E4EA, Kind::letter},
    {0x1E4EB, 0x1E4EB, Kind::modifier},
    {0x1E4EC, 0x1E4EF, Kind::mark},
    {0x1E4F0, 0x1E4F9, Kind::digit},
    {0x1E5D0, 0x1E5ED, Kind::letter},
    {0x1E5EE, 0x1E5EF, Kind::mark},
    {0x1E5F0, 0x1E5F0, Kind::letter},
    {0x1E5F1, 0x1E5FA, Kind::digit},
    {0x1E5FF, 0x1E5FF, Kind::punctuation},
    {0x1F6DC, 0x1F6DC, Kind::symbol},
    {0x1F774, 0x1F776, Kind::symbol},
    {0x1F77B, 0x1F77F, Kind::symbol},
    {0x1F7D9, 0x1F7D9, Kind::symbol},
    {0x1F8B2, 0x1F8BB, Kind::symbol},
    {0x1F8C0, 0x1F8C1, Kind::symbol},
    {0x1FA75, 0x1FA77, Kind::symbol},
    {0x1FA87, 0x1FA89, Kind::symbol},
    {0x1FA8F, 0x1FA8F, Kind::symbol},
    {0x1FAAD, 0x1FAAF, Kind::symbol},
    {0x1FABB, 0x1FABF, Kind::symbol},
    {0x1FAC6, 0x1FAC6, Kind::symbol},
    {0x1FACE, 0x1FACF, Kind::symbol},
    {0x1FADA, 0x1FADC, Kind::symbol},
    {0x1FADF, 0x1FADF, Kind::symbol},
    {0x1FAE8, 0x1FAE9, Kind::symbol},
    {0x1FAF7, 0x1FAF8, Kind::symbol},
    {0x1FBCB, 0x1FBEF, Kind::symbol},
    {0x2B739, 0x2B739, Kind::han},
    {0x2EBF0, 0x2EE5D, Kind::han},
    {0x31350, 0x323AF, Kind::han},
};

struct StandIn {
  CharacterKind kind;
  std::string_view three;  // bytes
  std::string_view four;
};

// Characters of each kind that PCRE2 knows.
constexpr StandIn kStandIns[] = {
    {Kind::upper, "\u1E00", "\U00010400"},        {Kind::lower, "\u1E01", "\U00010428"},
    {Kind::modifier, "\u1D2C", "\U00016B40"},     {Kind::letter, "\u0E01", "\U00010450"},
    {Kind::han, "\u4E00", "\U00020000"},          {Kind::mark, "\u1AB0", "\U0001E8D0"},
    {Kind::spacing_mark, "\u0903", "\U00011002"}, {Kind::digit, "\u0966", "\U000104A0"},
    {Kind::number, "\u2070", "\U00010107"},       {Kind::punctuation, "\u2016", "\U00010100"},
    {Kind::symbol, "\u2190", "\U0001F300"},       {Kind::format, "\u200B", "\U000E0001"},
};

}  // namespace

std::string_view stand_in_of(char32_t character) {
  const auto* at = std::upper_bound(std::begin(kNewerCharacters), std::end(kNewerCharacters), character,
                                    [](char32_t value, const NewerCharacters& range) { return value < range.first; });
  if (at == std::begin(kNewerCharacters) || character > std::prev(at)->last) return {};
  const CharacterKind kind = std::prev(at)->kind;
  const auto* found = std::find_if(std::begin(kStandIns), std::end(kStandIns),
                                   [&](const StandIn& stand_in) { return stand_in.kind == kind; });
  return character < 0x10000 ? found->three : found->four;
}

PatternSubject pattern_subject(std::string_view text, std::string& buffer) {
  constexpr char32_t kFirst = kNewerCharacters[0].first;
  PatternSubject subject{text};
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  bool copied = false;
  const auto replace = [&](const char* at, std::string_view by) {
    if (!copied) buffer.assign(text);
    copied = true;
    std::copy(by.begin(), by.end(), buffer.begin() + (at - begin));
  };
  const char* at = begin;
  while (true) {
    at = std::find_if(at, end, [](char c) { return static_cast<uint8_t>(c) >= 0x80; });
    if (at == end) break;
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(at), end - at, &code);
    if (size < 0) {
      replace(at++, "\x01");
      subject.is_valid = false;
      continue;
    }
    const auto character = static_cast<char32_t>(code);
    if (character >= kFirst) {
      if (const std::string_view stand_in = stand_in_of(character); !stand_in.empty()) replace(at, stand_in);
    }
    at += size;
  }
  if (copied) subject.text = buffer;
  return subject;
}

}  // namespace quire
