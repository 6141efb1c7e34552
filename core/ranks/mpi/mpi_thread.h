// The one thread that makes calls of MPI. Waiting for MPI means asking it again and again: with pauses, because the
// cores belong to those that compute.
#pragma once

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace quire {

class MpiThread {
 public:
  MpiThread();
  ~MpiThread();  // does not wait for work that hangs: leave it alive then
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Work is done in the order in which it is given. What it throws must be caught in it.
  void post(std::function<void()> work);
  // Does work there and returns when it is done, or throws what it threw. False: it was not done within the limit.
  bool run(const std::function<void()>& work, std::chrono::milliseconds limit);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

// Error(communication) with MPI's own words.
void check_mpi(int code, const char* what);

// Waits until all requests are done, on the thread of MPI. `look` is called every few milliseconds; it may throw, and
// the requests are then left behind.
void await_mpi(std::span<MPI_Request> requests, const std::function<void()>& look);

}  // namespace quire
