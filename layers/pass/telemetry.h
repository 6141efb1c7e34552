// Numbers about the inside of a model, for metrics.jsonl.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quire {

// Dotted names as in checkpoints: blocks.3.attention.codebook.perplexity.
using Telemetry = std::vector<std::pair<std::string, double>>;

}  // namespace quire
