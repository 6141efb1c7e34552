// A rank that fails, or does not come, ends what the others wait for: each gets the one error of the run.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "core/check.h"
#include "tests/kernels/cuda/nccl_ranks.h"

namespace quire::test {
namespace {

using std::chrono::milliseconds;

// Holds the error that all ranks threw; `thrown` counts them.
struct Outcome {
  ErrorKind kind = ErrorKind::internal;
  std::string message = "nothing";
  int thrown = 0;
};
Outcome outcome_of(int size, const std::function<void(NcclRank&)>& work, const cuda::NcclLimits& limits = {}) {
  std::atomic<int> thrown = 0;
  Outcome outcome;
  try {
    on_nccl_ranks(
        size,
        [&](NcclRank& rank) {
          try {
            work(rank);
          } catch (const Error&) {
            ++thrown;
            throw;
          }
        },
        limits);
  } catch (const Error& error) {
    outcome = {error.kind(), error.what()};
  }
  outcome.thrown = thrown;
  return outcome;
}

// A step: an operation, and a host that waits for what comes after it.
void sum(NcclRank& rank, const Tensor& values) {
  rank.collectives.all_reduce(values);
  rank.collectives.wait();
  rank.compute.synchronize();
}
void sum_three_times(NcclRank& rank) {
  const Tensor values = on_gpu(std::vector<float>(5000, 1.0F));
  for (int i = 0; i < 3; ++i) sum(rank, values);
  rank.collectives.wait();
}

TEST(NcclFailure, ErrorsOfNcclHaveItsWords) {
  const Injection injection("error@1:2=3");
  const Outcome outcome = outcome_of(3, sum_three_times);
  EXPECT_EQ(outcome.kind, ErrorKind::communication);
  EXPECT_EQ(outcome.message, "rank 1 on localhost: NCCL: internal error: as was asked for");
  EXPECT_EQ(outcome.thrown, 3);
}

TEST(NcclFailure, ARankThatThrowsEndsTheOperationsOfOthers) {
  const Outcome outcome = outcome_of(3, [](NcclRank& rank) {
    sum(rank, on_gpu(std::vector<float>(1)));
    if (rank.ranks.rank() == 1) throw Error(ErrorKind::data, "text 7 is broken");
    sum_three_times(rank);
  });
  EXPECT_EQ(outcome.kind, ErrorKind::data);
  EXPECT_EQ(outcome.message, "text 7 is broken");
  EXPECT_EQ(outcome.thrown, 3);
}

// The network tells first; the reason comes a little later.
TEST(NcclFailure, ErrorsOfTheNetworkGiveWayToTheReason) {
  const Injection injection("error@0:1=6");
  const Outcome outcome = outcome_of(2, [](NcclRank& rank) {
    if (rank.ranks.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(60));
      throw Error(ErrorKind::memory, "out of memory");
    }
    sum_three_times(rank);
  });
  EXPECT_EQ(outcome.kind, ErrorKind::memory);
  EXPECT_EQ(outcome.thrown, 2);
}

TEST(NcclFailure, ErrorsOfTheNetworkCountWhenThereIsNoReason) {
  const Injection injection("error@0:1=6");
  const Outcome outcome = outcome_of(2, sum_three_times, {.reason = milliseconds(50)});
  EXPECT_EQ(outcome.message, "rank 0 on localhost: NCCL: remote error: as was asked for");
  EXPECT_EQ(outcome.thrown, 2);
}

TEST(NcclFailure, DifferentOperationsAreAnError) {
  const Outcome outcome = outcome_of(2, [](NcclRank& rank) {
    sum(rank, on_gpu(std::vector<float>(5 + static_cast<size_t>(rank.ranks.rank()))));
    rank.collectives.wait();
  });
  EXPECT_NE(outcome.message.find("NCCL: invalid usage"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.thrown, 2);
}

// A control that ends the run when an operation is overdue, as that between processes does.
class EndsOverdue : public Control {
 public:
  explicit EndsOverdue(Control& of) : of_(of) {}
  int rank() const override { return of_.rank(); }
  int size() const override { return of_.size(); }
  std::string host() const override { return of_.host(); }
  std::vector<std::string> gather(const std::string& mine) override { return of_.gather(mine); }
  std::string broadcast(const std::string& text, int from) override { return of_.broadcast(text, from); }
  void barrier() override { of_.barrier(); }
  void set_deadline(milliseconds deadline) override { of_.set_deadline(deadline); }
  milliseconds deadline() const override { return of_.deadline(); }
  void set_activity(const RankActivity& activity) override { of_.set_activity(activity); }
  bool fail(ErrorKind kind, const std::string& message) override { return of_.fail(kind, message); }
  void check() const override { of_.check(); }
  void overdue(int64_t begun) override {
    of_.fail(ErrorKind::communication, fmt::format("a rank does not come to operation {}", begun));
  }

 private:
  Control& of_;
};

// Connects and sums with a deadline that is over soon.
Outcome outcome_of_waiting(milliseconds deadline) {
  std::atomic<int> thrown = 0;
  Outcome outcome;
  try {
    run_in_process(3, [&](Ranks& threads) {
      Ranks ranks(std::make_unique<EndsOverdue>(threads.control()), nullptr);
      ranks.set_deadline(deadline);
      const ComputeStream compute;
      try {
        const cuda::NcclConnection connection = connect_nccl(ranks, nccl_place(ranks, compute.get()));
        NcclRank rank{ranks, compute, *connection.collectives};
        sum_three_times(rank);
        connection.check();
      } catch (const Error&) {
        ++thrown;
        throw;
      }
    });
  } catch (const Error& error) {
    outcome = {error.kind(), error.what()};
  }
  outcome.thrown = thrown;
  return outcome;
}

TEST(NcclFailure, AnOperationThatNeverEndsIsOverdue) {
  const Injection injection("hang@1:2");
  const Outcome outcome = outcome_of_waiting(milliseconds(300));
  EXPECT_EQ(outcome.kind, ErrorKind::communication);
  EXPECT_EQ(outcome.message, "a rank does not come to operation 2");
  EXPECT_EQ(outcome.thrown, 3);
}

// The operation takes 4.5 seconds, in three of which this process is stopped.
TEST(NcclFailure, TimeInWhichTheProcessIsStoppedDoesNotCount) {
  const Injection injection("slow=4500");
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::usleep(500'000);
    ::kill(self, SIGSTOP);
    ::usleep(3'000'000);
    ::kill(self, SIGCONT);
    ::_exit(0);
  }
  const auto sum_once = [](NcclRank& rank) {
    rank.ranks.set_deadline(milliseconds(3500));
    sum(rank, on_gpu(std::vector<float>(5, 1.0F)));
  };
  EXPECT_EQ(outcome_of(2, sum_once, {.silence = milliseconds(1)}).message, "nothing");
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(NcclFailure, JoiningThatNeverEndsIsOverdue) {
  const Injection injection("init_hangs@2");
  const Outcome outcome = outcome_of_waiting(milliseconds(300));
  EXPECT_EQ(outcome.kind, ErrorKind::communication);
  EXPECT_NE(outcome.message.find("a rank does not come"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.thrown, 3);
}

// Threads of one process notice an absent rank elsewhere; here nobody does.
TEST(NcclFailure, EndsByItselfWhenNobodySaysWhy) {
  const Injection injection("hang@1:1");
  const Outcome outcome = outcome_of(2,
                                     [](NcclRank& rank) {
                                       rank.ranks.set_deadline(milliseconds(100));
                                       sum_three_times(rank);
                                     },
                                     {.silence = milliseconds(100)});
  EXPECT_NE(outcome.message.find("and no rank says why"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.thrown, 2);
}

// Values that a rank reads after its operation was ended mean nothing.
TEST(NcclFailure, WhatTheGpuComputesAfterwardsIsRefused) {
  const Injection injection("error=3");
  run_in_process(2, [](Ranks& ranks) {
    const ComputeStream compute;
    const cuda::NcclConnection connection = connect_nccl(ranks, nccl_place(ranks, compute.get()));
    EXPECT_NO_THROW(connection.check());
    ranks.barrier();  // both have come so far
    const auto reduce_and_look = [&] {
      connection.collectives->all_reduce(on_gpu(std::vector<float>(3)));
      for (;;) connection.check();
    };
    EXPECT_THROW(reduce_and_look(), Error);
    EXPECT_THROW(connection.check(), Error);
    EXPECT_THROW(connection.collectives->all_reduce(on_gpu(std::vector<float>(3))), Error);
    EXPECT_THROW(connection.collectives->wait(), Error);
    EXPECT_THROW(ranks.barrier(), SharedError);  // others may wait there
  });
}

TEST(NcclFailure, NothingWaitsForAnEndThatDoesNotCome) {
  const std::vector<Tensor> values{on_gpu(std::vector<float>(3)), on_gpu(std::vector<float>(3))};
  for (const char* what : {"finalize_hangs@0", "abort_hangs@0,error@0:1=3"}) {
    const Injection injection(what);
    const auto begun = std::chrono::steady_clock::now();
    const auto sum_and_wait = [&](NcclRank& rank) {
      rank.collectives.all_reduce(values[static_cast<size_t>(rank.ranks.rank())]);
      while (rank.collectives.finished() < 1) rank.collectives.all_gather(on_gpu(std::vector<float>(1)), {0, 0, 0});
      rank.collectives.wait();
    };
    const Outcome outcome = outcome_of(2, sum_and_wait, {.farewell = milliseconds(400)});
    EXPECT_EQ(outcome.thrown, what[0] == 'f' ? 0 : 2) << what << ": " << outcome.message;
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5)) << what;
  }
}

}  // namespace
}  // namespace quire::test
