// The runs of a sweep: every variant with every seed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainers/sweep/sweep_config.h"

namespace quire {

struct SweepRun {
  std::string variant;
  int64_t seed = 0;
  std::string config;                      // the file that it is read from
  std::filesystem::path folder;            // FOLDER/VARIANT-SEED
  std::filesystem::path origin;            // folder of the run whose weights it begins with; empty: none
  std::vector<std::string> overrides;      // of that file, the seed and init.from included
  std::vector<std::string> own_overrides;  // without init.*: for a look at the run before its origin is trained
};

// Returns the runs in the order of training: seed by seed, and a run after its origin. `more` are settings from the
// command line, which come last. Throws Error(config) for those that no run would use.
std::vector<SweepRun> runs_of(const SweepConfig& sweep, const std::filesystem::path& folder,
                              const std::vector<std::string>& more);

// Returns whether a run has done its last step. Throws Error(config) for a folder that holds something else than a run.
bool is_trained(const SweepRun& run, int64_t steps);

// Returns the text as one word of a shell's command line.
std::string shell_word(const std::string& text);

}  // namespace quire
