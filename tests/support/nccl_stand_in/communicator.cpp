#include "tests/support/nccl_stand_in/communicator.h"

#include <unistd.h>

#include <utility>

#include "tests/support/nccl_stand_in/injection.h"

namespace quire::nccl_stand_in {

struct Communicator::Operation {
  std::shared_ptr<Communicator> of;
  std::vector<Call> calls;
  int64_t number;
};

Communicator::Communicator(const std::string& name, int rank, int size)
    : room_(name, rank, size), thread_([this] { serve(); }) {}

Communicator::~Communicator() {
  destroy();
}

void Communicator::later(std::function<void()> work) {
  state_ = ncclInProgress;
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

void Communicator::serve() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
    if (ends_) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
  }
}

// Whoever is busy becomes idle; an error stays.
void Communicator::settle(ncclResult_t result) {
  ncclResult_t busy = ncclInProgress;
  state_.compare_exchange_strong(busy, result);
}

void Communicator::sleep(int64_t milliseconds) const {
  for (int64_t slept = 0; slept < milliseconds && !stop_; ++slept) ::usleep(1000);
}

void Communicator::until_stopped() const {
  Pause pause;
  while (!stop_) pause();
}

void Communicator::join() {
  later([this] {
    if (injected("init_hangs", room_.rank())) return until_stopped();
    if (room_.join(stop_)) settle(ncclSuccess);
  });
}

void Communicator::post(std::vector<Call> calls, cudaStream_t stream) {
  const auto operation = std::make_shared<const Operation>(Operation{shared_from_this(), std::move(calls), ++posted_});
  later([this, operation, stream] {
    sleep(injected("posting").value_or(1));
    const auto perform_it = [](void* given) {
      const std::unique_ptr<std::shared_ptr<const Operation>> mine(
          static_cast<std::shared_ptr<const Operation>*>(given));
      (*mine)->of->perform(**mine);
    };
    static_cast<void>(cudaLaunchHostFunc(stream, perform_it, new std::shared_ptr<const Operation>(operation)));
    settle(ncclSuccess);
  });
}

void Communicator::perform(const Operation& operation) {
  ++performing_;
  sleep(injected("slow", room_.rank(), operation.number).value_or(0));
  if (injected("hang", room_.rank(), operation.number)) until_stopped();
  ncclResult_t result = ncclSuccess;
  if (const auto error = injected("error", room_.rank(), operation.number)) {
    result = static_cast<ncclResult_t>(*error);
  } else if (!stop_) {
    result = run(operation.calls, room_, stop_);
  }
  if (result != ncclSuccess) {
    state_ = result;
    until_stopped();  // like a kernel whose partner is gone
  }
  ++performed_;
  --performing_;
}

void Communicator::finalize() {
  later([this] {
    if (injected("finalize_hangs", room_.rank())) return until_stopped();
    Pause pause;
    while (performed_ < posted_ && !stop_) pause();
    if (room_.part(stop_)) settle(ncclSuccess);
  });
}

void Communicator::abort() {
  if (injected("abort_hangs", room_.rank())) {
    for (;;) ::sleep(3600);
  }
  stop_ = true;
  Pause pause;
  while (performing_ > 0) pause();
  destroy();
}

void Communicator::destroy() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  queue_.clear();  // calls that were never given to a stream refer to this
}

}  // namespace quire::nccl_stand_in
