// The only thread that calls MPI. It polls MPI with pauses between the polls, because the cores belong to the threads
// that compute.
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
  ~MpiThread();  // does not wait for work that hangs: keep the object alive then
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  // Queues work, which runs in the order of the calls. It must catch what it throws.
  void post(std::function<void()> work);
  // Runs work on the thread and returns when it is done, or throws what it threw. Returns false when it was not done
  // within the limit.
  bool run(const std::function<void()>& work, std::chrono::milliseconds limit);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

// Throws Error(communication) with the words of MPI unless `code` means success.
void check_mpi(int code, const char* what);

// Waits on the MPI thread until all requests are done. `look` is called every few milliseconds; it may throw, and the
// requests are then abandoned.
void await_mpi(std::span<MPI_Request> requests, const std::function<void()>& look);

}  // namespace quire
