// Detects when a run has become far slower than in its first minutes.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

class Pace {
 public:
  // Steps are grouped into windows of at least so many seconds and at least kSteps steps.
  explicit Pace(double window_seconds = 60) : window_seconds_(window_seconds) {}

  // Adds the time of one step, without evaluation and checkpoints. Returns a warning once the steps of a window take
  // more than kFar times as long as those of the fastest of the first kFirst windows, else an empty text. The next
  // warning comes only after the run has been as fast as before again.
  std::string add(double seconds);

  static constexpr double kFar = 3;
  static constexpr int kFirst = 3;
  static constexpr int64_t kSteps = 5;

 private:
  double window_seconds_;
  double seconds_ = 0;  // seconds of the current window
  int64_t steps_ = 0;
  int windows_ = 0;
  double first_ = 0;  // seconds per step of the fastest of the first windows
  bool slow_ = false;
};

}  // namespace quire
