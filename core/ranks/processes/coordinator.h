// The decisions that rank 0 makes for all: when every rank has joined a call and what the call returns, which rank is
// missing, and which one error a failed run reports. It uses no sockets and no clock; callers pass the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ranks/control.h"
#include "core/ranks/processes/frames.h"

namespace quire {

// A call of Control as a text: "g" gathers, "b" broadcasts the text of rank `from`, "s" sums numbers and "m" takes the
// largest.
struct RankCall {
  char what = 'g';
  int from = 0;
  std::string text;
};
std::string packed_call(const RankCall& call);
std::vector<std::string> unpacked_texts(const std::string& texts);
std::string packed_activity(const RankActivity& activity);
RankActivity unpacked_activity(const std::string& text);

// A rank that is silent for this long, plus the deadline, is considered dead; each rank sends more often than that.
inline constexpr std::chrono::seconds kSilence{5};

class Coordinator {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `ranks` is the initial activity of every rank.
  Coordinator(std::vector<RankActivity> ranks, Time now);

  void receive(int from, const Frame& frame, Time now);
  // Says that the connection of a rank is gone.
  void lost(int rank);
  // Checks which ranks are late.
  void look(Time now, std::chrono::milliseconds deadline);
  // Extends all deadlines: rank 0 itself was stopped for so long.
  void forgive(std::chrono::steady_clock::duration asleep);

  struct Outgoing {
    int to;
    Frame frame;
  };
  std::vector<Outgoing> take_outgoing() { return std::exchange(outgoing_, {}); }

  bool all_have_ended() const;
  // Returns true when the rank that had to report the failure is gone without confirming that it did.
  bool is_unreported() const { return failure_ && reporter_is_lost_ && !told_; }

 private:
  struct Rank {
    RankActivity activity;
    Time heard;
    std::optional<Time> went_on;  // the last time when it reported progress
    bool ended = false;
    bool here = false;  // has joined the current call
    std::string text;   // its argument of the current call
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
  int here_ = 0;        // number of ranks in the current call
  uint64_t calls_ = 0;  // number of finished calls
  RankCall call_;       // the current call
  Time first_came_;
  std::optional<Time> first_overdue_;
  std::optional<Frame> failure_;
  std::optional<int> reporter_;  // the rank that was told to report the failure
  bool reporter_is_lost_ = false;
  bool told_ = false;  // the failure has been reported
};

}  // namespace quire
