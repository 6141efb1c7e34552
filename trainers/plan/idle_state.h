// Finds carried state that no document can fill.
#pragma once

#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "layers/state/state_layout.h"
#include "trainers/setup/config.h"

namespace quire {

// Returns a line for each carry.length that holds more than twice the tokens of the longest document of the splits that
// the run reads: memory, checkpoints and evaluations would be as large without it. It returns none with data.mix, or
// where rows do not hold whole documents.
std::vector<std::string> describe_idle_state(const RunConfig& config, const StateLayout& layout, Corpus& corpus);

}  // namespace quire
