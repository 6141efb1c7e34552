// The Linux control groups (cgroups, version 1 and 2) that limit what this process may use, as containers and batch
// systems set them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace quire {

struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;
};

// Returns the groups with a controller such as "cpu" or "memory": the one that this process is in and all groups around
// it that are visible. The process must respect the limits of each. `root` is where the file system begins.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::filesystem::path& root = "/");

// Returns the CPU quota in cores (CPU time per elapsed time); nothing where no quota is set.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace quire
