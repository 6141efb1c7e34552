// The letters that byte-level tokenizers write for bytes: 33-126, 161-172 and 174-255 stand for themselves, and U+0100
// and the letters behind it for the other 68 bytes, in order (Radford et al. 2019, encoder.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// Returns the letter of a byte in UTF-8.
const std::string& letter_of(uint8_t byte);
std::string to_byte_letters(std::string_view bytes);
// Returns the bytes of a text of such letters; nothing when another character is in it.
std::optional<std::string> from_byte_letters(std::string_view letters);

}  // namespace quire
