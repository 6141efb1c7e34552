// Worker threads for CPU kernels. Work is cut into tiles that depend on shapes only, and every tile writes its own
// output, so results do not depend on which thread takes which tile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace quire {

class ThreadPool {
 public:
  // `threads` counts the caller; 0 means one per core that this process may run on.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  // Calls work(tile) for 0 <= tile < tiles and returns when all are done. The first exception is rethrown. A call from
  // inside a tile runs serially.
  void run(int64_t tiles, const std::function<void(int64_t)>& work);

  // Returns the pool that kernels called from this thread use: the innermost Use, else a pool of one thread.
  static ThreadPool& current();
  class Use {
   public:
    explicit Use(ThreadPool& pool);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    ThreadPool* previous_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline void parallel_for(int64_t tiles, const std::function<void(int64_t)>& work) {
  ThreadPool::current().run(tiles, work);
}

}  // namespace quire
