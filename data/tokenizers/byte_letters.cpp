#include "data/tokenizers/byte_letters.h"

#include <utf8.h>

#include <array>
#include <iterator>

namespace quire {

namespace {

struct LetterTable {
  std::array<std::string, 256> letters;
  std::array<int, 512> bytes{};  // by code point, -1 for others
};

LetterTable make_letter_table() {
  LetterTable table;
  table.bytes.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const uint32_t letter = itself ? byte : next++;
    utf8::append(static_cast<char32_t>(letter), table.letters[byte]);
    table.bytes[letter] = static_cast<int>(byte);
  }
  return table;
}

const LetterTable& letter_table() {
  static const LetterTable table = make_letter_table();
  return table;
}

}  // namespace

const std::string& letter_of(uint8_t byte) {
  return letter_table().letters[byte];
}

std::string to_byte_letters(std::string_view bytes) {
  std::string letters;
  for (const char c : bytes) letters += letter_of(static_cast<uint8_t>(c));
  return letters;
}

std::optional<std::string> from_byte_letters(std::string_view letters) {
  std::string bytes;
  if (!utf8::is_valid(letters.begin(), letters.end())) return std::nullopt;
  for (const char* at = letters.data(); at != letters.data() + letters.size();) {
    const uint32_t letter = utf8::unchecked::next(at);
    const int byte = letter < letter_table().bytes.size() ? letter_table().bytes[letter] : -1;
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace quire
