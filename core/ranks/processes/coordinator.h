// What rank 0 decides for all: when every rank has come to a call and what the call returns, which rank is missing, and
// what the one error of a run that fails is. It knows no sockets and no clock of its own.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ranks/control.h"
#include "core/ranks/processes/frames.h"

namespace quire {

// A call of Control as a text: "g" gathers, "b" broadcasts what rank `from` gave, "s" sums numbers and "m"
// takes the largest.
struct RankCall {
  char what = 'g';
  int from = 0;
  std::string text;
};
std::string packed_call(const RankCall& call);
std::vector<std::string> unpacked_texts(const std::string& texts);
std::string packed_activity(const RankActivity& activity);
RankActivity unpacked_activity(const std::string& text);

// A rank that says nothing for so long, and for the deadline, is taken for one that does not live; each speaks more
// often.
inline constexpr std::chrono::seconds kSilence{5};

class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What every rank says until it says more.
  Coordinator(std::vector<RankActivity> ranks, Time now);

  void receive(int from, const Frame& frame, Time now);
  // The connection of a rank is gone.
  void lost(int rank);
  // Who is late?
  void look(Time now, std::chrono::milliseconds deadline);
  // Rank 0 did not look for so long.
  void forgive(std::chrono::steady_clock::duration asleep);

  struct Outgoing {
    int to;
    Frame frame;
  };
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  bool all_have_ended() const;
  // The failure was to be reported by a rank that has gone without saying that it did.
  bool is_unreported() const { return failure_ && reporter_is_lost_ && !told_; }

 private:
  struct Rank {
    RankActivity activity;
    Time heard;
    std::optional<Time> went_on;  // when it said last that its work goes on
    bool ended = false;
    bool here = false;  // in the call that others wait for
    std::string text;   // what it gave there
    std::optional<uint64_t> overdue;
  };
  void fail(ErrorKind kind, const std::string& message);
  void judge(int rank, const Frame& error);
  void take_told(int rank);
  void take_call(int rank, const Frame& frame, Time now);
  void finish_call();
  void send_all(const Frame& frame);
  const RankActivity& someone_here() const;
  void name_missing(std::chrono::milliseconds deadline, Time now);

  std::vector<Rank> ranks_;
  std::vector<Outgoing> outgoing_;
  int here_ = 0;        // ranks in the call
  uint64_t calls_ = 0;  // that are over
  RankCall call_;       // the one that is under way
  Time first_came_;
  std::optional<Time> first_overdue_;
  std::optional<Frame> failure_;
  std::optional<int> reporter_;  // who was told to report it
  bool reporter_is_lost_ = false;
  bool told_ = false;  // it has been reported
};

}  // namespace quire
