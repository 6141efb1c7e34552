#include "core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "core/control_groups.h"

namespace quire {

int allowed_cores() {
  const auto cores = static_cast<int>(allowed_core_list().size());
  const std::optional<double> quota = cpu_quota();
  return quota ? std::min(cores, static_cast<int>(std::ceil(*quota))) : cores;
}

int cores_of_machine() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

std::vector<int> allowed_core_list() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    for (int core = 0; core < cores_of_machine(); ++core) cores.push_back(core);
    return cores;
  }
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

int cores_of_parent() {
  cpu_set_t set;
  return sched_getaffinity(::getppid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : cores_of_machine();
}

int share_of_cores(const std::vector<int>& mine, const std::vector<std::vector<int>>& all) {
  double share = 0;
  for (const int core : mine) {
    const auto users = std::count_if(all.begin(), all.end(), [&](const std::vector<int>& cores) {
      return std::find(cores.begin(), cores.end(), core) != cores.end();
    });
    share += 1.0 / static_cast<double>(std::max<int64_t>(users, 1));
  }
  constexpr double kRounding = 1e-6;
  return std::max(1, static_cast<int>(std::floor(share + kRounding)));
}

}  // namespace quire
