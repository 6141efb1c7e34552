// The comparison that a sweep ends in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainers/cli/compare.h"
#include "trainers/setup/config.h"
#include "trainers/sweep/sweep.h"

namespace quire {

struct Sweep {
  SweepConfig config;
  std::vector<SweepRun> runs;
  std::vector<RunConfig> configs;  // of the runs, without their origins
};

// Compares the runs in their folders, but not those of `failed`.
void compare_trained(const Sweep& sweep, const std::vector<std::filesystem::path>& failed, const CompareOutput& output);

// Compares the runs of a file of kept runs. Throws Error(config) for one that is no run of the sweep as that is now.
void compare_kept(const Sweep& sweep, const std::string& kept_file, const std::string& sweep_file,
                  const CompareOutput& output);

}  // namespace quire
