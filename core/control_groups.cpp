#include "core/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace quire {

namespace {

namespace fs = std::filesystem;

bool lists(const std::string& names, const std::string& name) {
  std::istringstream list(names);
  for (std::string one; std::getline(list, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

// A mounted hierarchy: `top` is the group that its mount point shows.
struct Mount {
  int version;
  std::string top;
  std::string point;
};

std::vector<Mount> mounts_of(const std::string& controller, const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, top, point, type, source, options;
    words >> skipped >> skipped >> skipped >> top >> point;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> source >> options;
    if (type == "cgroup2") mounts.push_back({2, top, point});
    if (type == "cgroup" && lists(options, controller)) mounts.push_back({1, top, point});
  }
  return mounts;
}

// Returns the group of this process in a hierarchy, from its line in /proc/self/cgroup.
std::optional<std::string> group_in(int version, const std::string& controller, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (version == 2 ? controllers.empty() : lists(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Returns the part of a path below `top`; empty where the path is not below it, as in a container that sees only its
// own group.
std::string below(const std::string& path, const std::string& top) {
  if (path.find("..") != std::string::npos) return "";
  if (top == "/") return path;
  return path.starts_with(top + "/") ? path.substr(top.size()) : "";
}

// Returns the ratio of two numbers from files; nothing when one is no number, as in "max 100000".
std::optional<double> ratio(const fs::path& of, const fs::path& to = {}) {
  double value = 0;
  double unit = 0;
  std::ifstream file(of);
  if (!(file >> value)) return std::nullopt;
  std::ifstream other(to);
  if (!((to.empty() ? file : other) >> unit) || value <= 0 || unit <= 0) return std::nullopt;
  return value / unit;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const fs::path& root) {
  std::vector<ControlGroup> groups;
  for (const Mount& mount : mounts_of(controller, root)) {
    const std::optional<std::string> group = group_in(mount.version, controller, root);
    if (!group) continue;
    fs::path folder = root / fs::path(mount.point).relative_path();
    groups.push_back({folder, mount.version});
    for (const fs::path& part : fs::path(below(*group, mount.top)).relative_path()) {
      groups.push_back({folder /= part, mount.version});
    }
  }
  return groups;
}

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> min_quota;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const std::optional<double> quota =
        group.version == 2 ? ratio(group.folder / "cpu.max")
                           : ratio(group.folder / "cpu.cfs_quota_us", group.folder / "cpu.cfs_period_us");
    if (quota) min_quota = std::min(min_quota.value_or(*quota), *quota);
  }
  return min_quota;
}

}  // namespace quire
