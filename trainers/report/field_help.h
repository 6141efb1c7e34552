// The meaning of the fields of metrics.jsonl, as configs/OUTPUT.md says it.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace quire {

// Returns the name with N in place of its numbers: blocks.N.attention.memory.N.gate.N.
std::string field_pattern(std::string_view name);

// Returns the numbers of a name with the words before them: "block 3, memory 0, gate 1". Empty for a name without
// numbers.
std::string field_place(std::string_view name);

// Returns the meaning of every pattern in the tables below a heading of the page.
std::map<std::string, std::string> field_help(std::string_view page, std::string_view heading);

}  // namespace quire
