#include "core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include <thread>

namespace quire {

int allowed_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::vector<int> allowed_core_list() {
  std::vector<int> cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    for (int core = 0; core < allowed_cores(); ++core) cores.push_back(core);
    return cores;
  }
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

int cores_of_parent() {
  cpu_set_t set;
  return sched_getaffinity(::getppid(), sizeof(set), &set) == 0 ? CPU_COUNT(&set) : allowed_cores();
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
