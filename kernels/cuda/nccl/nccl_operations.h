// Counts the operations that a rank began on its communicator: which have ended, and how old the oldest of the others
// is. Two threads use it, the rank's and the one that watches (nccl_watch.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/cuda/stream.h"

namespace quire::cuda {

class NcclOperations {
 public:
  using Clock = std::chrono::steady_clock;

  NcclOperations() = default;
  NcclOperations(const NcclOperations&) = delete;
  NcclOperations& operator=(const NcclOperations&) = delete;
  ~NcclOperations();

  // Notes that one more is about to be given to a stream.
  void begin();
  // Notes that the ranks have joined, which is no operation.
  void joined();
  // Notes that the stream has it.
  void queued(cudaStream_t stream);
  // Makes the stream wait for all of them.
  void order_after_all(cudaStream_t stream);

  int64_t begun() const;
  int64_t finished();
  // Returns the begin of the oldest operation that has not ended.
  std::optional<Clock::time_point> oldest();

 private:
  struct Operation {
    Clock::time_point begun;
    cudaEvent_t done = nullptr;  // nullptr: no stream has it yet
  };
  void look();

  mutable std::mutex mutex_;
  std::deque<Operation> unfinished_;
  std::vector<cudaEvent_t> spare_;
  int64_t begun_ = 0;
};

}  // namespace quire::cuda
