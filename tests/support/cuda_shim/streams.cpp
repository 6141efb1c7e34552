// Streams as threads with a queue, events as signals that a stream gives.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/cuda_shim/cuda_streams.h"

namespace {

std::atomic<int> g_slow = -1;
std::atomic<int> g_made = 0;

class Signal {
 public:
  void give() {
    const std::lock_guard lock(mutex_);
    given_ = true;
    changed_.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return given_; });
  }
  bool given() {
    const std::lock_guard lock(mutex_);
    return given_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
};

class Stream {
 public:
  Stream() : thread_([this] { serve(); }) {}
  ~Stream() {
    give({});
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void give(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (!work) return;
      if (number_ == g_slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
      work();
    }
  }

  const int number_ = g_made++;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

// The state of the last recording; an event that was never recorded counts as complete.
struct Event {
  std::mutex mutex;
  std::shared_ptr<Signal> last;

  std::shared_ptr<Signal> signal() {
    const std::lock_guard lock(mutex);
    return last;
  }
};

void give(cudaStream_t stream, std::function<void()> work) {
  if (stream == nullptr) return work();
  static_cast<Stream*>(stream)->give(std::move(work));
}

// The streams that exist.
struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;

  static Streams& get() {
    static Streams* const streams = new Streams;  // threads may outlive statics
    return *streams;
  }
};

thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

namespace quire::shim {

void slow_down_stream(int number) {
  g_slow = number;
}

}  // namespace quire::shim

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream;
  Streams& streams = Streams::get();
  const std::lock_guard lock(streams.mutex);
  streams.all.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    Streams& streams = Streams::get();
    const std::lock_guard lock(streams.mutex);
    streams.all.erase(stream);
  }
  delete static_cast<Stream*>(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto signal = std::make_shared<Signal>();
  give(stream, [signal] { signal->give(); });
  signal->await();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::shared_ptr<Signal> signal = static_cast<Event*>(event)->signal();
  if (signal != nullptr) give(stream, [signal] { signal->await(); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  give(stream, [=] { function(data); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete static_cast<Event*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto signal = std::make_shared<Signal>();
  {
    Event& of = *static_cast<Event*>(event);
    const std::lock_guard lock(of.mutex);
    of.last = signal;
  }
  give(stream, [signal] { signal->give(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::shared_ptr<Signal> signal = static_cast<Event*>(event)->signal();
  if (signal == nullptr || signal->given()) return cudaSuccess;
  last_error = cudaErrorNotReady;
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::shared_ptr<Signal> signal = static_cast<Event*>(event)->signal();
  if (signal != nullptr) signal->await();
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  std::set<cudaStream_t> all;
  {
    Streams& streams = Streams::get();
    const std::lock_guard lock(streams.mutex);
    all = streams.all;
  }
  for (const cudaStream_t stream : all) cudaStreamSynchronize(stream);
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

}  // extern "C"
