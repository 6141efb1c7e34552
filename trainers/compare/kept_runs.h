// Runs that are kept in one file, without their weights: what a comparison needs of each, as a line of JSON.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainers/compare/compared_run.h"

namespace quire {

// Returns the lines of the file (configs/COMPARE.md), in which corpora have names without folders.
std::string kept_text(const std::vector<ComparedRun>& runs);

// Returns whether the first line of the file is a kept run, whatever else is in it.
bool is_kept_file(const std::filesystem::path& file);

// Returns the runs with paths FILE/NAME. Throws Error(data) that names the line when the file is damaged, or holds
// something else.
std::vector<ComparedRun> read_kept_runs(const std::filesystem::path& file);

}  // namespace quire
