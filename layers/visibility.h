// Which keys a query sees, and which T5 bucket a distance falls into.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/batch.h"

namespace quire {

// First visible key position per query, [R * T], for ops::AttentionInputs: keys of the query's own segment within the
// window; the first segment of a row also sees carried[r] keys before it. Padding sees nothing (T + 1).
std::vector<int32_t> first_visible(const Batch& batch, std::span<const int64_t> carried, std::optional<int64_t> window);

// Bucket of a relative position key - query (Raffel et al. 2020, with the 2^-23 of the published JAX code that keeps
// exact powers from falling into the lower bucket).
int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional);

}  // namespace quire
