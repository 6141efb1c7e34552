// Which cores this process may run on.
#pragma once

#include <vector>

namespace quire {

int allowed_cores();                   // how many: no more than a CPU quota (core/control_groups.h) gives time for
std::vector<int> allowed_core_list();  // their numbers, whatever the quota
int cores_of_parent();                 // those that the process may run on that has started this one
int cores_of_machine();

// The part of each of several processes, given the cores that each may run on: a core that several may use counts as a
// fraction. At least 1.
int share_of_cores(const std::vector<int>& mine, const std::vector<std::vector<int>>& all);

}  // namespace quire
