// A process as one of the ranks of a run.
#pragma once

#include <functional>
#include <string>

namespace quire {

// Calls program() with Ranks::current() being the ranks that mpirun, srun or the environment (launch.h) have started,
// and ends the process as its last act when they are several: the exit code is what program() returns, which has
// reported its errors (Ranks::fail), or that of an error of another rank. Without a launcher it returns that code.
int run_as_rank(const std::function<int()>& program);

// "Open MPI 4.1.4", or why several ranks cannot be started by mpirun.
struct MpiReport {
  std::string version;
  std::string reason;
};
MpiReport find_mpi();

}  // namespace quire
