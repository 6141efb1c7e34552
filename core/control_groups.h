// The control groups of Linux (cgroups, of version 1 and 2) that limit what this process may use, as containers and
// batch systems set them.
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

// Those with a controller, such as "cpu" or "memory": the one that this process is in and all around it, as far as they
// are visible. The limits of each hold. `root` is where the file system begins.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::filesystem::path& root = "/");

// The CPU time per time that they allow, in cores; nothing where no quota is set.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace quire
