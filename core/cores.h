// The cores that this process may run on.
#pragma once

#include <vector>

namespace quire {

int allowed_cores();                   // their number, at most what a CPU quota (core/control_groups.h) gives time for
std::vector<int> allowed_core_list();  // their indices, without regard to a quota
int cores_of_parent();                 // the number of cores that the parent process may run on
int cores_of_machine();

// Returns this process's share of the cores when several processes share a machine: `mine` are its cores, `all` those
// of each process. A core that several may use counts as a fraction. At least 1.
int share_of_cores(const std::vector<int>& mine, const std::vector<std::vector<int>>& all);

}  // namespace quire
