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

// A run ends when its tiles are done, whoever did them: nobody waits for a worker that sleeps or that the system has
// not let run, which on a busy machine takes milliseconds.
struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  // The number of the run, and in the lower half how many of its tiles nobody has taken. Who takes one changes it, so
  // that nobody can take a tile of a run that is over.
  std::atomic<uint64_t> untaken{0};
  std::atomic<bool> stop{false};

  // They change only while all tiles are done.
  const std::function<void(int64_t)>* work = nullptr;
  int64_t tiles = 0;
  std::atomic<int64_t> done{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  static constexpr uint64_t kTiles = 0xffffffff;

  uint64_t number() const { return untaken.load(std::memory_order_acquire) & ~kTiles; }

  void take_tiles() {
    t_inside_tile = true;
    int64_t taken = 0;
    for (uint64_t before = untaken.load(std::memory_order_acquire); (before & kTiles) > 0;) {
      if (!untaken.compare_exchange_weak(before, before - 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      try {
        (*work)(tiles - static_cast<int64_t>(before & kTiles));
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (error == nullptr) error = std::current_exception();
      }
      ++taken;
      before = untaken.load(std::memory_order_acquire);
    }
    t_inside_tile = false;
    if (taken > 0) done.fetch_add(taken, std::memory_order_release);
  }

  void serve() {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && number() == seen; ++spin) __builtin_ia32_pause();
      if (number() == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return number() != seen; });
      }
      seen = number();
      if (stop.load()) return;
      take_tiles();
    }
  }

  void announce(int64_t count) {
    {
      const std::lock_guard lock(mutex);
      untaken.store(number() + kTiles + 1 + static_cast<uint64_t>(count), std::memory_order_release);
    }
    wake.notify_all();
  }

  void end() {
    stop = true;
    announce(0);
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
  QUIRE_CHECK(tiles <= static_cast<int64_t>(State::kTiles), "{} tiles", tiles);
  State& state = *state_;
  state.work = &work;
  state.tiles = tiles;
  state.error = nullptr;
  state.done.store(0);
  state.announce(tiles);
  state.take_tiles();
  for (int spin = 0; state.done.load(std::memory_order_acquire) != tiles; ++spin) {
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
