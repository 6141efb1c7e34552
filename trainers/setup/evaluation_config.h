// The keys that may differ between training and evaluation or generation.
#pragma once

#include "trainers/setup/config.h"

namespace quire {

// Returns true for keys that change what a model sees and not its weights, such as window, cache and sizes of memories
// (FieldInfo::at_evaluation). Where several kinds share a name, one such key suffices.
bool may_differ_at_evaluation(const std::string& key);
inline constexpr std::string_view kMayDiffer =
    "window, cache, data.subsequence, data.score_first_token, and options of mixers and memories that quire config "
    "--list marks";

// Returns the configuration for evaluation and generation: data.pack is pad, then evaluate.set is applied, then the
// overrides. Overrides may change keys for which may_differ_at_evaluation() is true, and the keys in `others`. Throws
// Error(config) for any other key, because it would have no effect or need other weights.
RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides = {},
                            const std::vector<std::string>& others = {});

}  // namespace quire
