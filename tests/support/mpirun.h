// Runs the program (tests/support/program_with_mechanisms.cpp) under mpirun.
#pragma once

#include "tests/support/program.h"

namespace quire::test {

// Returns why there is no mpirun; empty when there is one.
std::string missing_mpirun();

struct MpirunOptions {
  std::string misbehaves = {};                    // QUIRE_TEST_AT
  bool told_to_end = false;                       // QUIRE_TEST_TOLD_TO_END
  std::vector<std::string> of_mpirun = {};        // more arguments of mpirun
  std::string program = "quire_with_mechanisms";  // in the build's bin folder
};
std::vector<std::string> mpirun_arguments(int size, const std::vector<std::string>& arguments,
                                          const MpirunOptions& options = {});
ProgramOptions mpirun_program(const MpirunOptions& options = {});

ProgramResult under_mpirun(int size, const std::vector<std::string>& arguments, const MpirunOptions& options = {});

// Returns the processes of the ranks that mpirun has started on this machine, by rank; waits until there are `size`.
std::vector<pid_t> processes_of_ranks(pid_t mpirun, int size);

}  // namespace quire::test
