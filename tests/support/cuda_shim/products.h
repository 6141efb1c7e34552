// What products on tensor cores are counted by, whoever plays them.
#pragma once

#include <cstdint>

namespace quire::shim {

// Of fragments, since the start: made by whole warps, of these by warpgroups, and matrices whose eight lines do not lie
// in 32 different banks.
void count_products(int64_t fragments);
void count_warpgroup_products(int64_t fragments);
void count_bank_conflicts(int64_t matrices);

}  // namespace quire::shim
