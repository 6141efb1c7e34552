// The state that ranks share when they are threads of one process, and how they meet.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "core/ranks/control.h"

namespace quire {

class InProcessGroup {
 public:
  explicit InProcessGroup(int size);

  int size() const { return static_cast<int>(activities_.size()); }

  // A place where all ranks meet repeatedly; each user of the group has its own.
  struct Meeting {
    explicit Meeting(int size) : here(static_cast<size_t>(size)) {}
    std::vector<uint8_t> here;
    int arrived = 0;
    uint64_t round = 0;
  };
  // Returns when all ranks have come. Throws SharedError when one of them has failed, has ended or does not come within
  // the deadline.
  void meet(Meeting& meeting, int rank);

  void set_deadline(std::chrono::milliseconds deadline);
  std::chrono::milliseconds deadline() const;
  void set_activity(const RankActivity& activity);
  RankActivity activity(int rank) const;
  // Returns whether the caller is to report the error (Control::fail).
  bool fail(ErrorKind kind, const std::string& message);
  // Throws SharedError once a rank has failed.
  void check() const;
  // Says that the rank makes no more calls.
  void leave(int rank);

  struct Failure {
    ErrorKind kind;
    std::string message;
    bool reported = false;  // a rank was told to report the failure
  };
  std::optional<Failure> failure();
  // Waits until all ranks have left, or a failure is older than `grace`; returns whether all have left.
  bool wait_for_all(std::chrono::milliseconds grace);

 private:
  void fail_locked(ErrorKind kind, const std::string& message);
  void throw_failure() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::milliseconds deadline_ = std::chrono::seconds(300);
  std::vector<RankActivity> activities_;
  std::vector<uint8_t> left_;
  std::optional<Failure> failure_;
  std::chrono::steady_clock::time_point failed_at_;
};

}  // namespace quire
