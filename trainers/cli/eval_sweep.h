// The values that --sweep gives to keys of the configuration.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace quire {

using KeyValues = std::vector<std::pair<std::string, std::string>>;  // dotted key, value as YAML

// Parses the arguments of --sweep, each "key.path=V1,V2", and returns every combination of their values; the values of
// the last one change fastest. Commas within brackets, braces and quotes belong to a value. Without arguments there is
// one empty combination. Throws Error(config) for an argument of another form, for a key that stands in two of them or
// in `overrides` ("key.path=value") and for a value that stands twice.
std::vector<KeyValues> combinations_of(const std::vector<std::string>& sweeps,
                                       const std::vector<std::string>& overrides);

}  // namespace quire
