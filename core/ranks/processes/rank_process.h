// Runs a process as one of the ranks of a run.
#pragma once

#include <functional>
#include <string>

namespace quire {

// Calls program() with Ranks::current() being the ranks that mpirun, srun or the environment (launch.h) have started.
// With several ranks it then ends the process, with the exit code of program(), which has reported its errors
// (Ranks::fail), or that of an error of another rank. Without a launcher it returns the code of program().
int run_as_rank(const std::function<int()>& program);

// The version of MPI, "Open MPI 4.1.4", or the reason why mpirun cannot start several ranks.
struct MpiReport {
  std::string version;
  std::string reason;
};
MpiReport find_mpi();

}  // namespace quire
