#include "core/ranks/ranks.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/cores.h"
#include "core/progress.h"
#include "core/ranks/in_process.h"
#include "tests/support/expect_error.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

std::string error_of(int size, const std::function<void(Ranks&)>& work, const InProcessOptions& options = {}) {
  try {
    run_in_process(size, work, options);
  } catch (const Error& error) {
    return fmt::format("{} {}", error.exit_code(), error.what());
  }
  return "";
}

TEST(Ranks, OneRankIsTheIdentity) {
  Ranks one;
  std::array<double, 2> values{3, 4};
  one.sum(values);
  EXPECT_EQ(values, (std::array<double, 2>{3, 4}));
  EXPECT_EQ(one.gather("a"), std::vector<std::string>{"a"});
  EXPECT_TRUE(one.is_root());
  const Tensor tensor = Tensor::from(std::vector<float>{1, 2}, {2});
  one.collectives().all_reduce(tensor);
  one.collectives().wait();
  EXPECT_EQ(tensor.to_vector<float>(), (std::vector<float>{1, 2}));
  // An error has the same text as without ranks.
  EXPECT_EQ(one.fail(ErrorKind::data, "wrong", false), "wrong");
}

TEST(Ranks, HostValuesGoInRankOrder) {
  for (const int size : {1, 2, 3, 5}) {
    run_in_process(size, [&](Ranks& ranks) {
      for (int round = 0; round < 50; ++round) {
        const std::vector<std::string> all = ranks.gather(std::string(static_cast<size_t>(ranks.rank() + round), 'x'));
        ASSERT_EQ(all.size(), static_cast<size_t>(size));
        for (size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank].size(), rank + static_cast<size_t>(round));
        EXPECT_EQ(ranks.broadcast_from_root(fmt::format("{} {}", ranks.rank(), round)), fmt::format("0 {}", round));
      }
      std::array<double, 1> value{1.0 + ranks.rank()};
      ranks.sum(value);
      EXPECT_EQ(value[0], size * (size + 1) / 2);
      EXPECT_EQ(ranks.largest(-1.0 - ranks.rank()), -1);
    });
  }
}

TEST(Ranks, KnowWhoSharesTheirHost) {
  run_in_process(5,
                 [](Ranks& ranks) {
                   const std::array<int, 5> places{0, 0, 1, 1, 2};
                   EXPECT_EQ(ranks.host_rank(), places[static_cast<size_t>(ranks.rank())]);
                   EXPECT_EQ(ranks.host_size(), ranks.rank() % 2 == 1 ? 2 : 3);
                 },
                 {.hosts = {"a", "b", "a", "b", "a"}, .probe = {}});
}

TEST(Ranks, ShareTheCoresOfTheirHost) {
  const std::vector<int> all{0, 1, 2, 3, 4, 5};
  EXPECT_EQ(share_of_cores(all, {all}), 6);
  EXPECT_EQ(share_of_cores(all, {all, all}), 3);
  EXPECT_EQ(share_of_cores(all, {all, all, all, all}), 1);
  EXPECT_EQ(share_of_cores({1}, {{0}, {1}}), 1);
  // Bound by a launcher: they are divided already.
  EXPECT_EQ(share_of_cores({0, 1, 2}, {{0, 1, 2}, {3, 4, 5}}), 3);
  // One of three ranks is not bound.
  EXPECT_EQ(share_of_cores(all, {{0, 1}, {2, 3}, all}), 4);
  EXPECT_EQ(share_of_cores({0, 1}, {{0, 1}, {0, 1}, {0, 1}}), 1);
  run_in_process(2, [](Ranks& ranks) { EXPECT_EQ(ranks.cores(), std::max(1, allowed_cores() / 2)); });
}

// 1 + tiny - 1 depends on the order of its terms.
template <typename T>
void expect_rank_order(int size) {
  const auto value = [](int rank, int64_t i) {
    return static_cast<T>(rank % 2 == 0 ? 1 : -1) + static_cast<T>(1e-9) * static_cast<T>(rank * 100 + i);
  };
  constexpr int64_t kCount = 10007;  // no multiple of anything
  std::vector<T> expected(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    for (int rank = 0; rank < size; ++rank) expected[static_cast<size_t>(i)] += value(rank, i);
  }
  run_in_process(size, [&](Ranks& ranks) {
    PartBounds bounds{0};  // the last rank but one has nothing
    for (int rank = 1; rank < size; ++rank) bounds.push_back(rank == size - 1 ? bounds.back() : kCount * rank / size);
    bounds.push_back(kCount);
    std::vector<T> mine;
    for (int64_t i = 0; i < kCount; ++i) mine.push_back(value(ranks.rank(), i));
    const Tensor reduced = Tensor::from(mine, {kCount});
    const Tensor scattered = Tensor::from(mine, {kCount});
    Collectives& collectives = ranks.collectives();
    collectives.all_reduce(reduced);
    collectives.reduce_scatter(scattered, bounds);
    collectives.wait();
    EXPECT_EQ(collectives.finished(), 2);
    EXPECT_EQ(reduced.to_vector<T>(), expected);
    const std::vector<T> part = scattered.to_vector<T>();
    for (int64_t i = bounds[static_cast<size_t>(ranks.rank())]; i < bounds[static_cast<size_t>(ranks.rank()) + 1];
         ++i) {
      ASSERT_EQ(part[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]) << i;
    }
    collectives.all_gather(scattered, bounds);
    collectives.wait();
    EXPECT_EQ(scattered.to_vector<T>(), expected);
  });
}

TEST(Ranks, SumsAreTakenInTheOrderOfRanks) {
  for (const int size : {2, 3, 4}) {
    expect_rank_order<float>(size);
    expect_rank_order<double>(size);
  }
}

TEST(Ranks, CollectivesGoOnBesideOtherWork) {
  run_in_process(2, [&](Ranks& ranks) {
    const Tensor values = Tensor::from(std::vector<double>{1}, {1});
    if (ranks.rank() == 0) {
      ranks.collectives().all_reduce(values);  // the other one begins when this rank has gone on
      EXPECT_EQ(ranks.collectives().finished(), 0);
      ranks.barrier();
    } else {
      ranks.barrier();
      ranks.collectives().all_reduce(values);
    }
    ranks.collectives().wait();
    EXPECT_EQ(values.to_vector<double>(), std::vector<double>{2});
  });
}

TEST(Ranks, AnErrorEndsAllOnceAndSaysWhere) {
  for (const int failing : {0, 1, 2}) {
    const std::string error = error_of(3,
                                       [&](Ranks& ranks) {
                                         ranks.set_step(7);
                                         const Ranks::Operation operation(ranks, "saving the checkpoint");
                                         if (ranks.rank() == failing) fail(ErrorKind::disk, "the disk is full");
                                         ranks.barrier();
                                       },
                                       {.hosts = {"a", "b", "c"}, .probe = {}});
    EXPECT_EQ(error, fmt::format("7 rank {} on {}, step 7, saving the checkpoint: the disk is full", failing,
                                 std::string(1, static_cast<char>('a' + failing))));
  }
  // Before anything is done together, the message is enough.
  EXPECT_EQ(error_of(2, [](Ranks&) { fail(ErrorKind::config, "no such key"); }), "2 no such key");
  // A rank fails in the middle of a collective.
  const std::string error = error_of(2, [](Ranks& ranks) {
    const Ranks::Operation operation(ranks, "summing gradients");
    if (ranks.rank() == 1) throw std::bad_alloc();
    ranks.collectives().all_reduce(Tensor::from(std::vector<double>{1}, {1}));
    ranks.collectives().wait();
  });
  EXPECT_EQ(error, "8 rank 1 on localhost, summing gradients: out of memory");
}

TEST(Ranks, ARankThatDoesNotAnswerIsNamed) {
  for (const bool collective : {false, true}) {
    std::atomic<bool> over = false;
    const std::string error = error_of(3, [&](Ranks& ranks) {
      ranks.set_deadline(milliseconds(50));
      ranks.barrier();
      ranks.set_step(3);
      if (ranks.rank() == 1) {
        const Ranks::Operation operation(ranks, "computing gradients");
        while (!over) std::this_thread::sleep_for(milliseconds(1));
        return;
      }
      const Ranks::Operation operation(ranks, "summing gradients");
      try {
        if (collective) {
          ranks.collectives().all_reduce(Tensor::from(std::vector<double>{1}, {1}));
          ranks.collectives().wait();
        } else {
          ranks.barrier();
        }
      } catch (...) {
        over = true;
        throw;
      }
    });
    EXPECT_EQ(error,
              "6 rank 1 on localhost, step 3, summing gradients: it does not answer since 0.05 s (run.rank_timeout); "
              "what it said last: rank 1 on localhost, step 3, computing gradients");
  }
}

TEST(Ranks, ARankWhoseWorkGoesOnIsWaitedFor) {
  std::atomic<bool> over = false;
  const std::string error = error_of(2, [&](Ranks& ranks) {
    ranks.set_deadline(milliseconds(200));
    ranks.barrier();
    if (ranks.rank() == 1) {
      for (int i = 0; i < 60; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
        note_progress();
      }
    }
    ranks.barrier();
    if (ranks.rank() == 1) {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    const Ranks::Operation operation(ranks, "waiting");
    try {
      ranks.barrier();
    } catch (...) {
      over = true;
      throw;
    }
  });
  EXPECT_EQ(
      error,
      "6 rank 1 on localhost, waiting: it does not answer since 0.2 s (run.rank_timeout); what it said last: rank "
      "1 on localhost");
}

TEST(Ranks, ARankThatEndsEarlyIsNamed) {
  const std::string error = error_of(2, [](Ranks& ranks) {
    if (ranks.rank() == 1) return;
    const Ranks::Operation operation(ranks, "counting targets");
    ranks.barrier();
  });
  EXPECT_EQ(error, "6 rank 1 on localhost, counting targets: it ended while others wait for it");
}

TEST(Ranks, AThreadThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_in_process(2,
                             [](Ranks& ranks) {
                               if (ranks.rank() == 1) fail(ErrorKind::data, "damaged");
                               std::this_thread::sleep_for(std::chrono::hours(1));
                             },
                             {.hosts = {}, .probe = {}, .grace = milliseconds(20)}),
              ::testing::ExitedWithCode(3), "quire: error: damaged");
}

TEST(Ranks, WhatFailsOnSomeFailsOnAllAndTheRunMayGoOn) {
  run_in_process(3, [](Ranks& ranks) {
    const auto message = [&](const std::function<void()>& call) {
      try {
        call();
      } catch (const SharedError& error) {
        return fmt::format("{} {}", error.exit_code(), error.what());
      }
      return std::string("none");
    };
    ranks.set_step(2);
    const Ranks::Operation operation(ranks, "saving the checkpoint");
    EXPECT_EQ(message([&] { ranks.on_root([] {}); }), "none");
    EXPECT_EQ(message([&] { ranks.on_root([] { fail(ErrorKind::disk, "full"); }); }), "7 full");
    EXPECT_EQ(message([&] { ranks.on_all([] { fail(ErrorKind::data, "no corpus"); }); }), "3 no corpus");
    EXPECT_EQ(message([&] {
                ranks.on_all([&] {
                  if (ranks.rank() == 2) fail(ErrorKind::disk, "full");
                });
              }),
              "7 rank 2 on localhost, step 2, saving the checkpoint: full");
    int calls = 0;
    ranks.on_one_per_host([&] { ++calls; });
    EXPECT_EQ(calls, ranks.rank() == 0 ? 1 : 0);
  });
}

TEST(Ranks, ThatDifferAreToldApart) {
  EXPECT_EQ(error_of(3,
                     [](Ranks& ranks) {
                       ranks.agree("the seed", "1");
                       ranks.agree("the corpus", ranks.rank() == 2 ? "b" : "a");
                     }),
            "6 the corpus: rank 2 has b and rank 0 has a; start all ranks with the same program, files and options");
}

TEST(Ranks, TheProbeSeesEveryOperation) {
  std::mutex mutex;
  std::vector<std::string> seen;
  const std::string error = error_of(2,
                                     [](Ranks& ranks) {
                                       { const Ranks::Operation first(ranks, "first"); }
                                       const Ranks::Operation second(ranks, "second");
                                       ranks.barrier();
                                     },
                                     {.hosts = {}, .probe = [&](const RankActivity& activity) {
                                        const std::lock_guard lock(mutex);
                                        seen.push_back(fmt::format("{} {}", activity.rank, activity.operation));
                                        if (activity.rank == 1 && activity.operation == "second")
                                          fail(ErrorKind::internal, "injected");
                                      }});
  EXPECT_EQ(error, "1 rank 1 on localhost, second: injected");
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::string>{"0 first", "0 second", "1 first", "1 second"}));
}

}  // namespace
}  // namespace quire
