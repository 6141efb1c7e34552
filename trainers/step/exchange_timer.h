// Adds the time until its destruction to a sum of seconds: the time that a rank waits for others, and for sums over all
// ranks.
#pragma once

#include <chrono>

namespace quire {

class ExchangeTimer {
 public:
  explicit ExchangeTimer(double& seconds) : seconds_(seconds) {}
  ~ExchangeTimer() { seconds_ += std::chrono::duration<double>(Clock::now() - begun_).count(); }
  ExchangeTimer(const ExchangeTimer&) = delete;
  ExchangeTimer& operator=(const ExchangeTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point begun_ = Clock::now();
};

}  // namespace quire
