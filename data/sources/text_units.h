// Cuts text where a tokenizer encodes it: after every newline, and lines that are too long before a space. Where the
// cuts lie follows from the text alone, so it does not matter in which pieces a document was read, and memory does not
// grow with the length of a document or a line.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

// Bytes of a line that are encoded together. Ordinary paragraphs are shorter.
inline constexpr size_t kLongestUnit = 4096;

// Bytes of the first unit of a text: up to and including a newline; or up to the last space before the limit, and
// without a space up to the limit, between characters; or all of it.
size_t first_unit(std::string_view text);

// Bytes of the beginning that are whole units whatever follows.
size_t whole_units(std::string_view text);

}  // namespace quire
