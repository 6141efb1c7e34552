// Measures time without the spans in which this process was stopped: a batch system may suspend a job (SIGSTOP) for
// hours, and that must not use up a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace quire {

class AwakeTime {
 public:
  using Duration = std::chrono::steady_clock::duration;
  // Call passed() at least once per `max_at_once`: a longer gap between two calls means that the process was stopped,
  // and it counts as `max_at_once`.
  explicit AwakeTime(Duration max_at_once = std::chrono::seconds(1)) : max_at_once_(max_at_once) {}

  // Returns the time since construction, without stops.
  Duration passed() {
    const auto now = std::chrono::steady_clock::now();
    passed_ += std::min(now - looked_, max_at_once_);
    looked_ = now;
    return passed_;
  }

 private:
  Duration max_at_once_;
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  Duration passed_{};
};

// Works as condition_variable::wait_for does, but the limit counts awake time.
template <typename Predicate>
bool wait_awake(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, AwakeTime::Duration limit,
                const Predicate& done) {
  AwakeTime waited;
  while (!done()) {
    const AwakeTime::Duration left = limit - waited.passed();
    if (left <= AwakeTime::Duration::zero()) return done();
    changed.wait_for(lock, std::min<AwakeTime::Duration>(left, std::chrono::milliseconds(200)));
  }
  return true;
}

}  // namespace quire
