// How this process was started: alone, or as one of several ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace quire {

// The environment variables that launchers set.
using Environment = std::function<const char*(const char* name)>;

struct Launch {
  enum class Way : uint8_t {
    alone,  // one rank
    mpi,    // by mpirun or srun: ranks find each other over MPI
    file,   // QUIRE_RENDEZVOUS names a file that all ranks see, where rank 0 says how to reach it
  };
  Way way = Way::alone;
  int rank = 0;
  int size = 1;
  std::optional<int> host_rank;  // among the ranks of its host, where the launcher says it
  std::string by;                // "mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=4)"
  std::string file;              // where ranks meet; a name of its own for every start of a job under SLURM
  // How long ranks wait for each other at the start, before run.rank_timeout is known (QUIRE_START_TIMEOUT, in
  // seconds).
  std::chrono::seconds patience{300};
  std::string address = {};  // of rank 0, as it gives it to the others (QUIRE_ADDRESS); empty: all that it has
  int port = 0;              // that rank 0 listens on (QUIRE_PORT); 0: any that is free
};

// Error(config) when QUIRE_RENDEZVOUS is given without rank and number of ranks, or a number is none.
Launch find_launch(const Environment& environment);
Launch find_launch();

// What CUDA_VISIBLE_DEVICES becomes for a rank of a host with `gpus` GPUs: that of its number, of those that are
// visible (null: all of them). Empty: it stays as it is, since there is no choice. A rank that shares a GPU is told so
// when ranks compute on GPUs (DeviceBackend::connect).
std::string own_gpu(int host_rank, const char* visible, int64_t gpus);

}  // namespace quire
