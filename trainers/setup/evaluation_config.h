// Which keys may differ between training and evaluation or generation.
#pragma once

#include "trainers/setup/config.h"

namespace quire {

// True for keys that change what a model sees and leave its weights as they are, such as window, cache and sizes of
// memories (FieldInfo::at_evaluation). Where several kinds share a name, any of them counts.
bool may_differ_at_evaluation(const std::string& key);
inline constexpr std::string_view kMayDiffer =
    "window, cache, data.subsequence, data.score_first_token, and options of mixers and memories that quire config "
    "--list marks";

// The configuration for evaluation and generation: data.pack is pad, then evaluate.set is applied, then the overrides.
// Overrides may change keys for which may_differ_at_evaluation() is true, and the keys in `others`. Any other key is
// Error(config), because it would have no effect or need other weights.
RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides = {},
                            const std::vector<std::string>& others = {});

}  // namespace quire
