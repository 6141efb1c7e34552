// One NCCL communicator of all ranks, with the thread that watches over it. Its calls do not block in NCCL.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "kernels/cuda/nccl/nccl_watch.h"

namespace quire::cuda {

class NcclCommunicator {
 public:
  NcclCommunicator(const NcclLibrary& library, Control& control, const NcclLimits& limits);
  // Ends the communicator, or leaves it when NCCL does not finish.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Joins the ranks; returns when all of them have called it.
  void join(const ncclUniqueId& id, int rank, int size);
  // Runs one operation, which consists of the calls that calls(communicator) makes; returns when the stream has it.
  void run(cudaStream_t stream, const std::function<ncclResult_t(ncclComm_t)>& calls);

  const NcclLibrary& nccl() const { return watched_->nccl; }
  NcclOperations& operations() { return watched_->operations; }
  void check() const { watched_->failure.check(); }
  const std::shared_ptr<NcclWatched>& watched() const { return watched_; }
  // Ends the communicator. Returns false when it was left because NCCL did not finish.
  bool end();

 private:
  void await(ncclResult_t state);

  std::shared_ptr<NcclWatched> watched_;
  std::thread thread_;
  const int exceptions_;  // number of exceptions in flight when it was made
};

}  // namespace quire::cuda
