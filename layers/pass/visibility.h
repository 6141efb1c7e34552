// Computes which keys a query sees, and which T5 bucket a distance falls into.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "layers/pass/forward.h"

namespace quire {

// Returns the first visible key position per query, [R * T], for ops::AttentionInputs: keys of the query's own segment
// within the window, and before it the initial[s] keys that segment s begins with. Padding sees nothing: its entry is T
// + 1.
std::vector<int32_t> first_visible(const Batch& batch, std::span<const Segment> segments,
                                   std::span<const int64_t> initial, std::optional<int64_t> window);
// Returns the same as a tensor i32 [R, T], made once a pass.
Tensor first_visible(const Forward& f, std::span<const int64_t> initial, std::optional<int64_t> window);

// Describes first_visible(batch, segments, initial, window) to cuDNN's kernels; `carried` is the largest value of
// initial. several_documents says that rows may have several; without it there is nothing where some row has a document
// that does not begin at its first position.
std::optional<ops::AttentionBand> visible_band(const Batch& batch, std::span<const Segment> segments, int64_t carried,
                                               std::optional<int64_t> window, bool several_documents);
// AttentionInputs::sequences of a batch whose rows may hold several documents. Made once a pass.
Tensor visible_sequences(const Forward& f);

// Returns u8 [R * T]: 1 for positions with a token. Made once a pass.
Tensor token_mask(const Forward& f);
// Returns u8 [R, T]: 1 for queries of segments that begin with the state of their row; undefined when all are. Made
// once a pass.
Tensor carried_mask(const Forward& f);

// Bucket of a relative position key - query (Raffel et al. 2020, with the 2^-23 of the published JAX code that keeps
// exact powers from falling into the lower bucket).
int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional);

}  // namespace quire
