// MPI as quire uses it: a library of its own (libquire_mpi.so), which is loaded when a launcher has started several
// ranks. One thread makes all calls of MPI.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/ranks/collectives.h"
#include "core/ranks/control.h"

namespace quire {

class MpiWorld {
 public:
  MpiWorld() = default;
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;
  virtual ~MpiWorld();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A name that ranks have in common when they share memory (MPI_Comm_split_type), and no others.
  virtual std::string host() const = 0;
  // Every rank gets the text of rank 0.
  virtual std::string from_root(const std::string& text) = 0;
  // For tensors of the CPU. `control` outlives them, and this outlives both.
  virtual std::unique_ptr<Collectives> collectives(Control& control) = 0;
  // MPI_Finalize, when all ranks have ended well. Returns whether it came back in time.
  virtual bool finalize() = 0;
};

// What libquire_mpi.so exports as quire_mpi: nullptr when it was built from other headers.
struct MpiLibrary {
  std::string version;  // "Open MPI 4.1.4", without starting it
  // MPI_Init. Error(communication) when that fails, or when the ranks have not all come to it after so long.
  std::unique_ptr<MpiWorld> (*start)(std::chrono::seconds patience);
};
using FindMpi = const MpiLibrary* (*)(const char* build_id);

}  // namespace quire
