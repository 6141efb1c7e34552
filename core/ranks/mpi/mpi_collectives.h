// Sums of tensors of the CPU between processes. A rank is sent the pieces of its part by all others and adds them in
// the order of ranks, so each byte travels once, and the bits are those of ranks that are threads (in_process.h).
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
  // On a communicator of their own.
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
  // Numbers that ranks send each other at once.
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
