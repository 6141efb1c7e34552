#include "core/ranks/mpi/mpi_thread.h"

#include <sys/prctl.h>

#include <array>
#include <exception>
#include <memory>

#include "core/awake_time.h"
#include "core/background_thread.h"
#include "core/check.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

// A message between processes of one host takes microseconds, so the thread polls without pauses only for this long;
// then it frees the core.
constexpr std::chrono::microseconds kBusy{200};
constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{200};
constexpr std::chrono::milliseconds kLook{10};

}  // namespace

MpiThread::MpiThread() : thread_(background_thread([this] { serve(); })) {}

MpiThread::~MpiThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void MpiThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

bool MpiThread::run(const std::function<void()>& work, std::chrono::milliseconds limit) {
  struct Outcome {
    bool done = false;
    std::exception_ptr error;
  };
  const auto outcome = std::make_shared<Outcome>();
  post([this, work, outcome] {
    std::exception_ptr error;
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    *outcome = {true, error};
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  if (!wait_awake(changed_, lock, limit, [&] { return outcome->done; })) return false;
  if (outcome->error) std::rethrow_exception(outcome->error);
  return true;
}

void MpiThread::serve() {
  ::prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: makes short pauses precise
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !work_.empty(); });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
  }
}

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int size = 0;
  MPI_Error_string(code, text.data(), &size);
  fail(ErrorKind::communication, "{}: {}", what, text.data());
}

void await_mpi(std::span<MPI_Request> requests, const std::function<void()>& look) {
  const Clock::time_point begun = Clock::now();
  Clock::time_point looked = begun;
  std::chrono::microseconds pause = kFirstPause;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) return;
    const Clock::time_point now = Clock::now();
    if (now - looked > kLook) {
      looked = now;
      look();
    }
    if (now - begun < kBusy) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }
}

}  // namespace quire
