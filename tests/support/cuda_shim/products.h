// Counters of products on tensor cores, shared by both emulations.
#pragma once

#include <cstdint>

namespace quire::shim {

// Since the start: fragments that whole warps have made, and matrices whose eight lines do not lie in 32 different
// banks.
void count_products(int64_t fragments);
void count_bank_conflicts(int64_t matrices);

}  // namespace quire::shim
