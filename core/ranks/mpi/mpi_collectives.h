// Collectives for CPU tensors between processes. All others send a rank the pieces of its part, and it adds them in the
// order of ranks, so each byte travels once, and the bits equal those of ranks that are threads (in_process.h).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "core/ranks/control.h"
#include "core/ranks/cpu_collective.h"
#include "core/ranks/mpi/mpi_thread.h"

namespace quire {

class MpiCollectives : public Collectives {
 public:
  // `communicator` must be used by nothing else.
  MpiCollectives(MpiThread& thread, MPI_Comm communicator, Control& control, std::string version);
  ~MpiCollectives() override;  // waits for what is under way

  void all_reduce(const Tensor& values) override { begin(CpuCollective::all_reduce(values, size_)); }
  void reduce_scatter(const Tensor& values, const PartBounds& bounds) override {
    begin(CpuCollective::reduce_scatter(values, bounds, size_));
  }
  void all_gather(const Tensor& values, const PartBounds& bounds) override {
    begin(CpuCollective::all_gather(values, bounds, size_));
  }
  void wait() override;
  int64_t finished() const override;
  std::string description() const override { return version_; }

 private:
  // The numbers that ranks send each other in one round.
  struct Pieces {
    std::vector<std::vector<std::byte>> arrived;  // by rank
    std::vector<MPI_Request> requests;
  };

  void begin(CpuCollective work);
  void serve(const CpuCollective& work);
  template <typename T>
  void reduce(const CpuCollective& work);
  template <typename T>
  void begin_pieces(const CpuCollective& work, int64_t from, Pieces& pieces);
  template <typename T>
  void sum_pieces(const CpuCollective& work, int64_t from, const Pieces& pieces) const;
  template <typename T>
  void gather(const CpuCollective& work);
  void await(std::vector<MPI_Request>& requests);

  MpiThread& thread_;
  MPI_Comm communicator_;
  Control& control_;
  std::string version_;
  size_t rank_;
  size_t size_;
  std::array<Pieces, 2> pieces_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t begun_ = 0;
  int64_t finished_ = 0;
  std::exception_ptr error_;
};

}  // namespace quire
