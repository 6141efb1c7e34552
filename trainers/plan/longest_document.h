// How long the documents of a run are, which bounds what its rows carry.
#pragma once

#include <optional>

#include "data/corpus/corpus.h"
#include "trainers/setup/config.h"

namespace quire {

// Returns the stored tokens of the longest text that a row reads as one document, in training or in an evaluation; none
// when a corpus is not here.
std::optional<int64_t> longest_document(const RunConfig& config);
// Looks only at data.corpus, without data.mix.
int64_t longest_document(const RunConfig& config, Corpus& corpus);

}  // namespace quire
