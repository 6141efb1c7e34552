// Words of PTX.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::ptx {

// Returns the text without white space at both ends.
std::string trimmed(std::string_view text);
// Splits at commas outside of brackets; parts are trimmed, and none is empty.
std::vector<std::string> split_at_commas(std::string_view text);
// The parts of an instruction's name: `ld`, `global`, `u32`.
std::vector<std::string> split_name(const std::string& name);
// Bytes of a value of a type such as `b32`; 0 of a predicate.
int bytes_of_type(const std::string& type);
size_t round_up(size_t bytes, size_t to);
// The first place from `bytes` on for an array of shared memory: no better aligned than it is declared to be, so that
// who needs more does not get it by luck.
size_t place_of_array(size_t bytes, size_t alignment);

// A declaration such as `.align 16 .b8 name[128]`; [] is an array of 0 bytes.
struct Declaration {
  size_t alignment = 1;
  size_t element = 1;  // bytes
  std::string name;
  size_t bytes = 0;

  explicit Declaration(std::string_view text);
};

}  // namespace quire::ptx
