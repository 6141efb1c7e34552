// What may be another at evaluation and generation than in training.
#pragma once

#include "trainers/run/config.h"

namespace quire {

// What a model sees may be another at evaluation without its being another model: window, cache, sizes of memories.
// Whether a field of this name says so; where kinds share a name, that of any of them.
bool may_differ_at_evaluation(const std::string& key);
inline constexpr std::string_view kMayDiffer =
    "window, cache, data.subsequence, and what quire config --list marks so of mixers and memories";

// The configuration evaluation and generation run with: data.pack is pad, evaluate.set applied, then overrides. These
// may change what a model sees (window, cache, data.subsequence, model.attention.xl.clamp) and the keys in `others`;
// Error(config) for the rest, which would have no effect or make it another model.
RunConfig evaluation_config(const RunConfig& config, const std::vector<std::string>& overrides = {},
                            const std::vector<std::string>& others = {});

}  // namespace quire
