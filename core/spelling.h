// Finds the known name that a misspelt one most likely means.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace quire {

// Returns the optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b);

// Returns the name with the smallest distance to `misspelt`; empty when none is within 1 + a third of its letters.
std::string nearest_name(std::span<const std::string> names, std::string_view misspelt);

// Returns "; did you mean NAME?", or nothing when no name is near.
std::string did_you_mean(std::span<const std::string> names, std::string_view misspelt);

}  // namespace quire
