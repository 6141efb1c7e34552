// Characters of UTF-8 text and their classes.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

// Returns the character that begins at a byte; 0, which is in no class, for bytes that are not UTF-8.
char32_t character_at(std::string_view text, size_t at);
// Returns where the character before byte `end` > 0 begins.
size_t character_before(std::string_view text, size_t end);

bool is_word_character(char32_t character);  // letters, marks, decimal digits, connectors, joiners
bool is_space_character(char32_t character);
bool is_letter_or_number(char32_t character);

}  // namespace quire
