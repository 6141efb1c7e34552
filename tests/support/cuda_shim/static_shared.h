// Arrays that a kernel declares __shared__, found by the names of the program's symbols.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace quire::shim {

struct SharedArray {
  void* begin;
  size_t bytes;
};
// Returns the arrays of the kernel at this address; none when it has no symbol.
const std::vector<SharedArray>& static_shared_of(const void* kernel);
// Returns the mangled symbol of a function of the program; empty when it has none.
std::string symbol_of(const void* kernel);

}  // namespace quire::shim
