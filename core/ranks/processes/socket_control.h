// Control between processes: each has a connection to rank 0, which decides (coordinator.h). A separate thread serves
// the connections, so a rank answers while it computes; it sends a sign of life once a second.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/ranks/control.h"
#include "core/ranks/processes/coordinator.h"
#include "core/ranks/processes/rendezvous.h"

namespace quire {

struct SocketControlOptions {
  std::chrono::milliseconds deadline = std::chrono::seconds(300);
  // The time that the program has to end after a failure. Then the process ends with the failure's exit code.
  std::chrono::milliseconds grace = std::chrono::seconds(15);
};

class SocketControl : public Control {
 public:
  // The first constructor is for rank 0, with its peers; the second for the others, with their connection to rank 0.
  SocketControl(const Member& member, std::vector<Rendezvous::Peer> peers, const SocketControlOptions& options = {});
  SocketControl(const Member& member, std::unique_ptr<FrameSocket> root, const SocketControlOptions& options = {});
  ~SocketControl() override;

  int rank() const override { return member_.rank; }
  int size() const override { return member_.size; }
  std::string host() const override { return member_.host; }
  std::vector<std::string> gather(const std::string& mine) override;
  std::string broadcast(const std::string& text, int from) override;
  void barrier() override;
  void reduce(Reduction reduction, std::span<double> values) override;
  void set_deadline(std::chrono::milliseconds deadline) override;
  std::chrono::milliseconds deadline() const override;
  void set_activity(const RankActivity& activity) override;
  RankActivity activity() const override;
  bool fail(ErrorKind kind, const std::string& message) override;
  void check() const override;
  void overdue(int64_t begun) override;

  // Says that the program is over on this rank. Returns when the others need this rank no more: after a failure, when
  // it has been reported, within a few seconds. Returns the failure's exit code, or nothing.
  std::optional<int> leave();

 private:
  using Clock = std::chrono::steady_clock;
  struct Failure {
    ErrorKind kind;
    std::string message;
    Clock::time_point at;
  };

  // A rank waits this long for rank 0 to decide who reports its error.
  static constexpr std::chrono::seconds kVerdict{5};

  void start();
  void serve();
  bool wait_for_news();
  void take_news();
  void look();
  void read_peer(size_t peer);
  void say_news(Clock::time_point now);
  void post(const Frame& frame);
  void deliver_outgoing();
  void accept(const Frame& frame);
  void fail_here(ErrorKind kind, const std::string& message);
  [[noreturn]] void throw_failure() const;
  std::string call(const RankCall& call);
  void forgive(Clock::time_point now);
  void lose_root(const std::string& message);
  void report_failure();
  void end_after_loss(Clock::time_point now);
  void end_process();

  const Member member_;
  const SocketControlOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<FrameSocket>> peers_;  // on rank 0: by rank; on the others: rank 0 alone
  std::optional<Coordinator> coordinator_;           // on rank 0
  std::chrono::milliseconds deadline_;
  RankActivity activity_;
  bool activity_is_news_ = false;
  Clock::time_point said_;        // last time when this rank sent something
  Clock::time_point heard_root_;  // last time when rank 0 was heard; on the others
  Clock::time_point looked_;      // last time when this process was seen awake
  RankActivity root_activity_;
  bool root_is_lost_ = false;
  uint64_t calls_ = 0;
  std::optional<Frame> result_;
  std::optional<Failure> failure_;
  std::optional<bool> verdict_;
  bool reports_ = false;
  bool told_ = false;
  std::optional<Clock::time_point> lost_at_;  // when a mapped file was found truncated (core/files/map_guard.h)
  bool stopping_ = false;
  int wake_ = -1;  // an eventfd
  std::thread thread_;
};

}  // namespace quire
