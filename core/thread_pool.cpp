#include "core/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/background_thread.h"
#include "core/check.h"
#include "core/cores.h"

namespace quire {

namespace {

thread_local ThreadPool* t_pool = nullptr;
thread_local bool t_inside_tile = false;

// Workers spin this often before they sleep: kernels follow each other within microseconds, and sleeping would cost
// more.
constexpr int kSpins = 4000;

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};  // increases by one for every run()
  std::atomic<bool> stop{false};

  const std::function<void(int64_t)>* work = nullptr;
  int64_t tiles = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};  // workers that have not finished this run
  std::mutex error_mutex;
  std::exception_ptr error;

  void take_tiles() {
    t_inside_tile = true;
    for (int64_t tile = next.fetch_add(1); tile < tiles; tile = next.fetch_add(1)) {
      try {
        (*work)(tile);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (error == nullptr) error = std::current_exception();
      }
    }
    t_inside_tile = false;
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation.load(std::memory_order_acquire) == seen; ++spin) {
        __builtin_ia32_pause();
      }
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load()) return;
      take_tiles();
      busy.fetch_sub(1, std::memory_order_release);
    }
  }

  void announce() {
    {
      const std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }

  void end() {
    stop = true;
    announce();
    for (std::thread& worker : workers) worker.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int count = threads > 0 ? threads : allowed_cores();
  state_->workers.reserve(static_cast<size_t>(count - 1));
  try {
    for (int i = 1; i < count; ++i) {
      state_->workers.push_back(start_thread(fmt::format("thread {} of {} (run.threads)", i + 1, count),
                                             [state = state_.get()] { state->serve(); }));
    }
  } catch (...) {
    state_->end();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  state_->end();
}

int ThreadPool::threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::run(int64_t tiles, const std::function<void(int64_t)>& work) {
  if (tiles <= 1 || state_->workers.empty() || t_inside_tile) {
    for (int64_t tile = 0; tile < tiles; ++tile) work(tile);
    return;
  }
  State& state = *state_;
  state.work = &work;
  state.tiles = tiles;
  state.error = nullptr;
  state.next.store(0);
  state.busy.store(static_cast<int>(state.workers.size()));
  state.announce();
  state.take_tiles();
  for (int spin = 0; state.busy.load(std::memory_order_acquire) != 0; ++spin) {
    if (spin < kSpins) {
      __builtin_ia32_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (state.error != nullptr) std::rethrow_exception(state.error);
}

ThreadPool& ThreadPool::current() {
  if (t_pool != nullptr) return *t_pool;
  static ThreadPool single(1);
  return single;
}

ThreadPool::Use::Use(ThreadPool& pool) : previous_(t_pool) {
  t_pool = &pool;
}
ThreadPool::Use::~Use() {
  t_pool = previous_;
}

}  // namespace quire
