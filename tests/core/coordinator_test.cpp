// Decisions of rank 0, without sockets and with a clock that the test moves.
#include "core/ranks/processes/coordinator.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "core/ranks/ranks.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(int ranks = 3) : coordinator_(places(ranks), Coordinator::Time()) {}
  static std::vector<RankActivity> places(int ranks) {
    std::vector<RankActivity> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.push_back({rank, std::string(1, static_cast<char>('a' + rank)), 0, ""});
    }
    return all;
  }
  void call(int rank, char what, const std::string& text, int from = 0) {
    coordinator_.receive(rank, {FrameType::call, number_, packed_call({what, from, text})}, now_);
  }
  void does(int rank, int64_t step, const std::string& operation, uint64_t since_progress = kNoProgress) {
    coordinator_.receive(rank,
                         {FrameType::activity, since_progress,
                          packed_activity({rank, places(3)[static_cast<size_t>(rank)].host, step, operation})},
                         now_);
  }
  void fails(int rank, const std::string& message) {
    coordinator_.receive(rank, {FrameType::fail, static_cast<uint64_t>(ErrorKind::disk), message}, now_);
  }
  void pass(Coordinator::Time::duration time) { now_ += time; }
  void look() { coordinator_.look(now_, kDeadline); }
  // The frames of a type that rank 1 gets; all ranks get as many.
  std::vector<Frame> frames_of(FrameType type) {
    std::vector<std::vector<Frame>> of_rank(3);
    for (const Coordinator::Outgoing& outgoing : coordinator_.take_outgoing()) {
      if (outgoing.frame.type == type) of_rank[static_cast<size_t>(outgoing.to)].push_back(outgoing.frame);
    }
    EXPECT_EQ(of_rank[0].size(), of_rank[1].size());
    EXPECT_EQ(of_rank[2].size(), of_rank[1].size());
    return of_rank[1];
  }
  std::string failure() {
    const std::vector<Frame> failed = frames_of(FrameType::failed);
    if (failed.empty()) return "";
    EXPECT_EQ(failed.size(), 1U);
    return fmt::format("{} {}", failed[0].number, failed[0].text);
  }

  static constexpr seconds kDeadline{10};
  Coordinator coordinator_;
  Coordinator::Time now_;
  uint64_t number_ = 1;
};

TEST_F(CoordinatorTest, ACallReturnsWhenAllHaveCome) {
  call(2, 'g', "two");
  call(0, 'g', std::string("a\0b", 3));
  EXPECT_TRUE(frames_of(FrameType::result).empty());
  call(1, 'g', "");
  std::vector<Frame> results = frames_of(FrameType::result);
  ASSERT_EQ(results.size(), 1U);
  EXPECT_EQ(results[0].number, 1U);
  EXPECT_EQ(unpacked_texts(results[0].text), (std::vector<std::string>{std::string("a\0b", 3), "", "two"}));
  number_ = 2;
  for (const int rank : {0, 1, 2}) call(rank, 'b', rank == 2 ? "mine" : "", 2);
  results = frames_of(FrameType::result);
  EXPECT_EQ(results.at(0).text, "mine");
  for (const char reduce : {'s', 'm'}) {
    ++number_;
    for (const int rank : {1, 2, 0}) {
      const std::vector<double> values{1e16 * (rank == 0 ? 1 : -1) * (rank == 2 ? 0 : 1), -1.0 - rank};
      call(rank, reduce, packed<double>(values));
    }
    const std::vector<double> expected = reduce == 's' ? std::vector<double>{0, -6} : std::vector<double>{1e16, -1};
    EXPECT_EQ(unpacked<double>(frames_of(FrameType::result).at(0).text), expected);
  }
}

TEST_F(CoordinatorTest, RanksThatMakeDifferentCallsAreToldSo) {
  call(0, 'g', "");
  call(1, 'b', "");
  EXPECT_EQ(failure(), "1 rank 1 on b: it makes another call than the other ranks");
}

TEST_F(CoordinatorTest, OfErrorsTheFirstIsReportedByOne) {
  const auto verdicts = [&] {
    std::vector<std::pair<int, bool>> all;
    for (const Coordinator::Outgoing& outgoing : coordinator_.take_outgoing()) {
      if (outgoing.frame.type == FrameType::verdict) all.emplace_back(outgoing.to, outgoing.frame.number != 0);
    }
    return all;
  };
  using Verdicts = std::vector<std::pair<int, bool>>;
  fails(2, "full");
  EXPECT_EQ(verdicts(), (Verdicts{{2, true}}));
  fails(1, "full");
  fails(0, "another");
  EXPECT_EQ(verdicts(), (Verdicts{{1, false}, {0, false}}));
  coordinator_.lost(2);
  EXPECT_EQ(failure(), "");  // it has failed already
}

TEST_F(CoordinatorTest, OneThatAllFindOutIsReportedByTheFirstThatSaysSo) {
  does(1, 4, "saving the checkpoint");
  coordinator_.lost(1);
  const std::string message = failure().substr(2);
  EXPECT_TRUE(message.starts_with("rank 1 on b, step 4, saving the checkpoint: its process is gone")) << message;
  fails(0, "what came of it");
  fails(2, message);
  fails(0, message);
  std::vector<std::pair<int, bool>> all;
  for (const Coordinator::Outgoing& outgoing : coordinator_.take_outgoing())
    all.emplace_back(outgoing.to, outgoing.frame.number != 0);
  EXPECT_EQ(all, (std::vector<std::pair<int, bool>>{{0, false}, {2, true}, {0, false}}));
}

TEST_F(CoordinatorTest, WhoEndsIsMissedByThoseWhoCome) {
  for (const bool before : {false, true}) {
    SetUp();
    coordinator_ = Coordinator(places(3), now_);
    does(0, 2, "evaluating");
    if (!before) call(0, 'g', "");
    coordinator_.receive(2, {FrameType::ended}, now_);
    coordinator_.lost(2);
    if (before) call(0, 'g', "");
    EXPECT_EQ(failure(), "6 rank 2 on c, step 2, evaluating: it ended while others wait for it");
  }
  EXPECT_FALSE(coordinator_.all_have_ended());
  for (const int rank : {0, 1}) coordinator_.receive(rank, {FrameType::ended}, now_);
  EXPECT_TRUE(coordinator_.all_have_ended());
}

TEST_F(CoordinatorTest, WhoDoesNotComeIsNamedAfterTheDeadline) {
  does(2, 7, "computing gradients");
  does(0, 7, "summing gradients");
  call(0, 'g', "");
  for (int beat = 0; beat < 10; ++beat) {
    pass(seconds(1));
    for (const int rank : {0, 1, 2}) does(rank, 7, rank == 0 ? "summing gradients" : "computing gradients");
    if (beat == 5) call(1, 'g', "");
    look();
    ASSERT_EQ(failure(), "") << beat;
  }
  pass(milliseconds(1));
  look();
  EXPECT_EQ(failure(),
            "6 rank 2 on c, step 7, summing gradients: it does not answer since 10 s (run.rank_timeout); what it said "
            "last: rank 2 on c, step 7, computing gradients");
}

TEST_F(CoordinatorTest, WhoseWorkGoesOnIsWaitedFor) {
  call(0, 'g', "");
  call(1, 'g', "");
  const auto beat = [&](uint64_t of_rank_2) {
    for (const int rank : {0, 1}) does(rank, 0, "verifying the corpus");
    does(2, 0, "verifying the corpus", of_rank_2);
  };
  for (int second = 0; second < 40; ++second) {
    pass(seconds(1));
    beat(second % 3 * 1000);
    look();
    ASSERT_EQ(failure(), "") << second;
  }
  // The last one was at 40 s. What others do helps nobody.
  for (int second = 40; second < 50; ++second) {
    pass(seconds(1));
    does(0, 0, "verifying the corpus", 0);
    beat(static_cast<uint64_t>(second + 1 - 40) * 1000);
    look();
    ASSERT_EQ(failure(), "") << second;
  }
  pass(milliseconds(1));
  look();
  EXPECT_EQ(failure(),
            "6 rank 2 on c, verifying the corpus: it does not answer since 10 s (run.rank_timeout); what it said last: "
            "rank 2 on c, verifying the corpus");
}

TEST_F(CoordinatorTest, ProgressBeforeTheCallDoesNotShortenIt) {
  does(1, 0, "x", 5);
  pass(seconds(60));
  for (const int rank : {0, 1, 2}) does(rank, 0, "x", 60'000);
  call(0, 'g', "");
  pass(seconds(10));
  for (const int rank : {0, 1, 2}) does(rank, 0, "x", 70'000);
  look();
  EXPECT_EQ(failure(), "");
  pass(milliseconds(1));
  look();
  EXPECT_TRUE(failure().starts_with("6 rank 1 on b"));
}

TEST_F(CoordinatorTest, WhoIsSilentIsNamedThoughNobodyWaits) {
  pass(seconds(8));
  does(0, 1, "x");
  does(2, 1, "x");
  pass(seconds(2) + milliseconds(1));
  look();
  EXPECT_TRUE(failure().starts_with("6 rank 1 on b: it does not answer since 10 s"));
}

TEST_F(CoordinatorTest, ItsOwnSleepIsNobodysFault) {
  call(0, 'g', "");
  pass(seconds(100));
  coordinator_.forgive(seconds(100));
  look();
  EXPECT_EQ(failure(), "");
  pass(seconds(11));
  look();
  EXPECT_NE(failure(), "");
}

TEST_F(CoordinatorTest, OfACollectiveTheOneThatDoesNotWaitIsNamed) {
  const auto overdue = [&](int rank, uint64_t begun) {
    coordinator_.receive(rank, {FrameType::overdue, begun, ""}, now_);
  };
  const auto later = [&](const std::vector<int>& alive) {
    pass(seconds(4));
    for (const int rank : alive) does(rank, 5, fmt::format("operation {}", rank));
    look();
    const std::string text = failure();
    coordinator_ = Coordinator(places(3), now_);
    return text.substr(0, text.find(" since"));
  };
  overdue(0, 8);
  overdue(2, 8);
  EXPECT_EQ(later({0, 1, 2}), "6 rank 1 on b, step 5, operation 0: it does not answer");  // it computes still
  overdue(0, 8);
  overdue(1, 8);
  overdue(2, 7);
  EXPECT_EQ(later({0, 1, 2}), "6 rank 2 on c, step 5, operation 0: it does not answer");  // it waits in another one
  overdue(1, 8);
  overdue(2, 8);
  EXPECT_EQ(later({1, 2}), "6 rank 0 on a, step 5, operation 1: it does not answer");  // it is silent
  for (const int rank : {0, 1, 2}) overdue(rank, 8);
  EXPECT_TRUE(later({0, 1, 2}).starts_with("6 rank 0 on a, step 5, operation 0: all ranks have been in the same sum"));
  overdue(1, 3);
  look();
  EXPECT_EQ(failure(), "");  // the others have a moment to say where they are
}

// Such a case follows a stop of all ranks that one rank counted as longer than another did.
TEST_F(CoordinatorTest, ACollectiveThatComesAfterAllIsForgiven) {
  const auto overdue = [&](int rank, uint64_t begun) {
    coordinator_.receive(rank, {FrameType::overdue, begun, ""}, now_);
  };
  overdue(1, 8);
  overdue(2, 8);
  overdue(1, 0);
  pass(seconds(2));
  overdue(2, 0);
  pass(seconds(2));
  for (const int rank : {0, 1, 2}) does(rank, 5, "computing");
  look();
  EXPECT_EQ(failure(), "");
  overdue(2, 9);
  pass(seconds(2));
  look();
  EXPECT_EQ(failure(), "");  // it waits since now
  pass(seconds(2));
  for (const int rank : {0, 1, 2}) does(rank, 5, "computing");
  look();
  EXPECT_NE(failure(), "");
}

// Rank 0 was stopped, and goes on when rank 1 has given it up and said so.
TEST_F(CoordinatorTest, WhatARankHasReportedNobodyReportsAgain) {
  coordinator_.receive(1, {FrameType::told}, now_);
  const std::vector<Coordinator::Outgoing> outgoing = coordinator_.take_outgoing();
  ASSERT_EQ(outgoing.size(), 6U);
  EXPECT_EQ(outgoing.front().frame.type, FrameType::failed);
  EXPECT_EQ(outgoing.back().frame.type, FrameType::told);
  coordinator_.lost(1);
  coordinator_.receive(0, {FrameType::fail, outgoing.front().frame.number, outgoing.front().frame.text}, now_);
  const std::vector<Coordinator::Outgoing> answer = coordinator_.take_outgoing();
  ASSERT_EQ(answer.size(), 1U);
  EXPECT_EQ(answer[0].frame.type, FrameType::verdict);
  EXPECT_EQ(answer[0].frame.number, 0U);
  EXPECT_FALSE(coordinator_.is_unreported());
}

TEST_F(CoordinatorTest, AReporterThatIsGoneBeforeItReportsIsMissed) {
  fails(2, "the disk is full");
  fails(1, "the disk is full");
  EXPECT_FALSE(coordinator_.is_unreported());
  coordinator_.lost(1);
  EXPECT_FALSE(coordinator_.is_unreported());
  coordinator_.lost(2);
  EXPECT_TRUE(coordinator_.is_unreported());
}

}  // namespace
}  // namespace quire
