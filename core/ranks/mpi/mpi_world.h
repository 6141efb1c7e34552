// The interface of quire's MPI library (libquire_mpi.so), which is loaded when a launcher has started several ranks.
// One thread makes all calls of MPI.
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
  // Returns a name that exactly those ranks have in common that share memory (MPI_Comm_split_type).
  virtual std::string host() const = 0;
  // Returns the text of rank 0 on every rank.
  virtual std::string from_root(const std::string& text) = 0;
  // Returns collectives for CPU tensors. `control` must outlive them, and this object must outlive both.
  virtual std::unique_ptr<Collectives> collectives(Control& control) = 0;
  // Calls MPI_Finalize, when all ranks have ended well. Returns whether it came back in time.
  virtual bool finalize() = 0;
};

// The functions that libquire_mpi.so exports through quire_mpi, which returns nullptr when the library was built from
// other headers.
struct MpiLibrary {
  std::string version;  // "Open MPI 4.1.4", without starting it
  // Calls MPI_Init. Throws Error(communication) when that fails, or when not all ranks have called it within
  // `patience`.
  std::unique_ptr<MpiWorld> (*start)(std::chrono::seconds patience);
};
using FindMpi = const MpiLibrary* (*)(const char* build_id);

}  // namespace quire
