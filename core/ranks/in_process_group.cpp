#include "core/ranks/in_process_group.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/progress.h"
#include "core/ranks/missing_rank.h"

namespace quire {

InProcessGroup::InProcessGroup(int size) : activities_(static_cast<size_t>(size)), left_(static_cast<size_t>(size)) {}

void InProcessGroup::meet(Meeting& meeting, int rank) {
  std::unique_lock lock(mutex_);
  if (failure_) throw_failure();
  const uint64_t mine = meeting.round;
  meeting.here[static_cast<size_t>(rank)] = 1;
  if (++meeting.arrived == size()) {
    meeting.arrived = 0;
    ++meeting.round;
    std::fill(meeting.here.begin(), meeting.here.end(), uint8_t{0});
    changed_.notify_all();
    return;
  }
  const auto first_absent = [&](bool gone) {
    for (size_t other = 0; other < left_.size(); ++other) {
      if (meeting.here[other] == 0 && (!gone || left_[other] != 0)) return static_cast<int>(other);
    }
    return -1;
  };
  const auto over = [&] { return meeting.round != mine || failure_ || first_absent(true) >= 0; };
  bool told = changed_.wait_for(lock, deadline_, over);
  // A rank that makes progress is waited for beyond the deadline. A waiting rank reports no progress, so any progress
  // comes from a rank that works.
  while (!told) {
    const auto progress = since_progress();
    if (!progress || *progress >= deadline_) break;
    told = changed_.wait_for(lock, deadline_ - *progress, over);
  }
  if (meeting.round != mine) return;
  if (!failure_) {
    const RankActivity& here = activities_[static_cast<size_t>(rank)];
    const RankActivity& absent = activities_[static_cast<size_t>(first_absent(told))];
    const std::string message = told ? ended_while_awaited(absent, here) : does_not_answer(absent, here, deadline_);
    fail_locked(ErrorKind::communication, message);
  }
  throw_failure();
}

void InProcessGroup::set_deadline(std::chrono::milliseconds deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = deadline;
}

std::chrono::milliseconds InProcessGroup::deadline() const {
  const std::lock_guard lock(mutex_);
  return deadline_;
}

void InProcessGroup::set_activity(const RankActivity& activity) {
  const std::lock_guard lock(mutex_);
  activities_[static_cast<size_t>(activity.rank)] = activity;
}

RankActivity InProcessGroup::activity(int rank) const {
  const std::lock_guard lock(mutex_);
  return activities_[static_cast<size_t>(rank)];
}

bool InProcessGroup::fail(ErrorKind kind, const std::string& message) {
  const std::lock_guard lock(mutex_);
  fail_locked(kind, message);
  if (failure_->message != message) return false;
  return !std::exchange(failure_->reported, true);
}

void InProcessGroup::fail_locked(ErrorKind kind, const std::string& message) {
  if (failure_) return;
  failure_ = Failure{kind, message};
  failed_at_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void InProcessGroup::throw_failure() const {
  throw SharedError(failure_->kind, failure_->message);
}

void InProcessGroup::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw_failure();
}

void InProcessGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(rank)] = 1;
  changed_.notify_all();
}

std::optional<InProcessGroup::Failure> InProcessGroup::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool InProcessGroup::wait_for_all(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  const auto all_left = [&] { return std::count(left_.begin(), left_.end(), uint8_t{0}) == 0; };
  changed_.wait(lock, [&] { return all_left() || failure_; });
  return all_left() || changed_.wait_until(lock, failed_at_ + grace, all_left);
}

}  // namespace quire
