// Counters of products on tensor cores, shared by both emulations.
#pragma once

#include <cstdint>

namespace quire::shim {

// Count products of fragments since the start: those of whole warps, those of warpgroups, and matrices whose eight
// lines do not lie in 32 different banks.
void count_products(int64_t fragments);
void count_warpgroup_products(int64_t fragments);
void count_bank_conflicts(int64_t matrices);

}  // namespace quire::shim
