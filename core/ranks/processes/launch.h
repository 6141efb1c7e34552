// Finds out how this process was started: alone, or as one of several ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace quire {

// Looks up environment variables, as set by launchers.
using Environment = std::function<const char*(const char* name)>;

struct Launch {
  enum class Way : uint8_t {
    alone,  // one rank
    mpi,    // started by mpirun or srun: ranks find each other over MPI
    file,   // QUIRE_RENDEZVOUS names a file that all ranks see, where rank 0 says how to reach it
  };
  Way way = Way::alone;
  int rank = 0;
  int size = 1;
  std::optional<int> host_rank;  // number among the ranks of its host, if the launcher gives it
  std::string by;                // "mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=4)"
  std::string file;              // the rendezvous file; its name differs for every start of a job under SLURM
  // The time that ranks wait for each other at the start, before run.rank_timeout is known (QUIRE_START_TIMEOUT, in
  // seconds).
  std::chrono::seconds patience{300};
  std::string address = {};  // address of rank 0 for the others (QUIRE_ADDRESS); empty: all addresses of its host
  int port = 0;              // port that rank 0 listens on (QUIRE_PORT); 0: any free port
};

// Throws Error(config) when QUIRE_RENDEZVOUS is given without rank and number of ranks, or when one of these is no
// number.
Launch find_launch(const Environment& environment);
Launch find_launch();

// Returns the value of CUDA_VISIBLE_DEVICES for a rank on a host with `gpus` GPUs: the visible GPU with the rank's
// number (`visible` null: all are visible). An empty result leaves the variable as it is, because there is no choice.
// Ranks that share a GPU are told so when they begin to compute on it (DeviceBackend::connect).
std::string own_gpu(int host_rank, const char* visible, int64_t gpus);

}  // namespace quire
