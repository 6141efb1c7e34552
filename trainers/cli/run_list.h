// Run directories on a command line, and the page about them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Throws Error(config) for a path that is no run directory, and for a run that is given twice.
void require_different_runs(const std::vector<std::string>& runs);

// Returns the number of the run that --baseline names; 0 for an empty name. Throws Error(config) when it is none of
// the runs.
size_t number_of_baseline(const std::vector<std::string>& runs, const std::string& baseline);

// Checks the path of a page before anything is computed: only a file that begins with `mark` may be replaced, which
// `what` describes ("a page of quire compare"). Throws Error(config) or Error(disk) that names the option.
void require_page(const std::string& file, std::string_view option, std::string_view mark, std::string_view what);

}  // namespace quire
