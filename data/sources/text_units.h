// Cuts text into the units that a tokenizer encodes: after every newline, and before a space where a line is too long.
// The cuts depend on the text alone and not on the pieces in which a document was read, and memory does not grow with
// the length of a document or a line.
#pragma once

#include <cstddef>
#include <string_view>

namespace quire {

// The largest number of bytes of a line that are encoded together. Ordinary paragraphs are shorter.
inline constexpr size_t kLongestUnit = 4096;

// Returns the bytes of the first unit of a text. A unit ends with a newline; in a longer line it ends before the last
// space within the limit, or at the limit, between characters, when there is no space; else it is the whole text.
size_t first_unit(std::string_view text);

// Returns how many bytes at the beginning of the text form whole units, whatever text follows.
size_t whole_units(std::string_view text);

}  // namespace quire
