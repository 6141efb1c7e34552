#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace quire {
namespace {

TEST(ThreadPool, DoesEveryTileOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t tiles : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(tiles));
      pool.run(tiles, [&](int64_t tile) { ++done[static_cast<size_t>(tile)]; });
      for (const std::atomic<int>& times : done) ASSERT_EQ(times, 1) << threads << " threads, " << tiles << " tiles";
    }
  }
}

TEST(ThreadPool, UsesAllItsThreadsAndReturnsWhenAllAreDone) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> waiting{0};
  std::atomic<int> finished{0};
  pool.run(3, [&](int64_t) {
    ++waiting;
    while (waiting < 3) std::this_thread::yield();  // no thread can take two tiles
    {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    ++finished;
  });
  EXPECT_EQ(finished, 3);
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_TRUE(seen.contains(std::this_thread::get_id())) << "the caller works too";
}

TEST(ThreadPool, ServesAfterASleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // workers have stopped spinning
    std::atomic<int64_t> sum{0};
    pool.run(100, [&](int64_t tile) { sum += tile; });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadPool, RethrowsAndGoesOn) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  EXPECT_THROW(pool.run(50,
                        [&](int64_t tile) {
                          ++done;
                          if (tile == 7) throw std::runtime_error("tile 7");
                        }),
               std::runtime_error);
  EXPECT_EQ(done, 50) << "other tiles are done all the same";
  done = 0;
  pool.run(50, [&](int64_t) { ++done; });
  EXPECT_EQ(done, 50);
  EXPECT_THROW(ThreadPool(1).run(3, [](int64_t) { throw std::logic_error("serial"); }), std::logic_error);
}

TEST(ThreadPool, RunsSeriallyInsideATile) {
  ThreadPool pool(2);
  const ThreadPool::Use use(pool);
  std::atomic<int> inner{0};
  std::atomic<int> elsewhere{0};
  parallel_for(4, [&](int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel_for(8, [&](int64_t) {
      ++inner;
      elsewhere += std::this_thread::get_id() == outer ? 0 : 1;
    });
  });
  EXPECT_EQ(inner, 32);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, TheInnermostUseCounts) {
  EXPECT_EQ(ThreadPool::current().threads(), 1);
  ThreadPool two(2);
  ThreadPool three(3);
  {
    const ThreadPool::Use outer(two);
    {
      const ThreadPool::Use inner(three);
      EXPECT_EQ(ThreadPool::current().threads(), 3);
      std::thread([] { EXPECT_EQ(ThreadPool::current().threads(), 1) << "a use is of its thread alone"; }).join();
    }
    EXPECT_EQ(ThreadPool::current().threads(), 2);
  }
  EXPECT_EQ(ThreadPool::current().threads(), 1);
}

}  // namespace
}  // namespace quire
