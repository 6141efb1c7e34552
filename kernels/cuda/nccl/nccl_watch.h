// A thread that watches over one communicator and ends it when it fails, when another rank has failed, or when the
// others do not come to an operation. Meanwhile the rank's thread may wait for the GPU or be inside NCCL.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/awake_time.h"
#include "core/ranks/control.h"
#include "core/ranks/ranks.h"
#include "core/tensor.h"
#include "kernels/cuda/nccl/nccl_library.h"
#include "kernels/cuda/nccl/nccl_operations.h"
#include "kernels/cuda/nccl/nccl_place.h"

namespace quire::cuda {

// Holds the error that ended a communicator. It is set before the communicator is aborted, so that a thread that wakes
// up finds it.
class NcclFailure {
 public:
  void set(std::exception_ptr error);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  void check() const;  // throws it

 private:
  std::atomic<bool> set_ = false;
  std::exception_ptr error_;
};

// Holds the state that the rank's thread and the watching thread share; the last of them to use it frees it.
class NcclWatched {
 public:
  NcclWatched(const NcclLibrary& library, Control& control, const NcclLimits& limits)
      : nccl(library), limits_(limits), control_(&control) {}

  const NcclLibrary nccl;
  NcclOperations operations;
  NcclFailure failure;
  std::vector<Tensor> in_use;  // tensors of operations that nobody has waited for; their memory must not be reused

  // Calls function(communicator) while nobody ends it, and throws the failure when it has ended. An error of the call
  // becomes the failure that the watching thread reports.
  template <typename Function>
  ncclResult_t call(Function&& function) {
    ncclResult_t result = ncclSuccess;
    {
      const std::unique_lock lock(calls_);
      if (!ended_) result = function(communicator_);
      if (!ended_ && result != ncclSuccess && result != ncclInProgress) note(result);
    }
    if (ended_ || (result != ncclSuccess && result != ncclInProgress)) throw_failure();
    return result;
  }

  // Runs in the thread until it is told to leave or the communicator fails.
  void watch();
  // Asks the thread to end the communicator, in good order or at once, and waits a limited time for it. Returns false
  // when the communicator was left.
  bool leave(bool in_good_order);

 private:
  using Clock = NcclOperations::Clock;

  std::exception_ptr look();
  std::exception_ptr error_of_control();
  std::exception_ptr error_of_nccl();
  std::exception_ptr error_of_age();
  std::exception_ptr told(const std::exception_ptr& error);
  void note(ncclResult_t result);
  [[noreturn]] void throw_failure();
  void abort();
  void end();
  void done();

  const NcclLimits limits_;
  std::mutex calls_;  // one call of NCCL at a time
  ncclComm_t communicator_ = nullptr;
  std::atomic<bool> ended_ = false;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Control* control_;  // nullptr: it was destroyed
  bool leaving_ = false;
  bool in_good_order_ = true;
  bool done_ = false;
  std::string nccl_error_;
  bool of_the_network_ = false;
  Clock::time_point error_at_;

  // The watching thread's own. Deadlines count the time in which this process was not stopped.
  std::optional<Clock::time_point> oldest_;  // when the operation that has been under way for longest began
  AwakeTime age_;                            // of it, from the first look on
  std::optional<AwakeTime> overdue_;
};

}  // namespace quire::cuda
