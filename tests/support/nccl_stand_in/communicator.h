// A communicator of the stand-in. A thread does what NCCL does in the background: join, give groups to their stream,
// end.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/nccl_stand_in/operation.h"

namespace quire::nccl_stand_in {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(const std::string& name, int rank, int size);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Returns ncclInProgress while the background is busy; errors persist.
  ncclResult_t state() const { return state_; }
  void join();
  void post(std::vector<Call> calls, cudaStream_t stream);
  void finalize();
  // abort() also ends running work, in the background too.
  void abort();
  void destroy();

 private:
  struct Operation;
  void later(std::function<void()> work);
  void serve();
  void perform(const Operation& operation);
  void settle(ncclResult_t result);
  void sleep(int64_t milliseconds) const;
  void until_stopped() const;

  Room room_;
  Stop stop_ = false;
  std::atomic<ncclResult_t> state_ = ncclSuccess;
  std::atomic<int> performing_ = 0;
  int64_t posted_ = 0;
  std::atomic<int64_t> performed_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace quire::nccl_stand_in
