// Shows the progress of long work: a bar on a terminal, a line every 15 seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace quire {

class Progress {
 public:
  // `done` is where the work starts: the time estimate of a resumed run ignores earlier work.
  Progress(std::string label, int64_t total, int64_t done = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap to call often: output is limited by time. `text` is, for example, "loss 1.23".
  void update(int64_t done, const std::string& text = "");
  // Excludes time that was spent on something else from the elapsed time and the estimate.
  void leave_out(double seconds);
  // Prints the last state as a plain line and removes the bar.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_since(Clock::time_point time) const;

  std::string label_;
  int64_t total_;
  int64_t first_;
  int64_t done_;
  std::string text_;
  bool on_terminal_;
  bool finished_ = false;
  Clock::time_point start_;
  Clock::time_point last_bar_;
  Clock::time_point last_line_;
};

struct ProgressState {
  std::string label;
  int64_t first = 0;
  int64_t done = 0;
  int64_t total = 0;
  double seconds = 0.0;  // spent on first..done
  std::string text;
};
std::string progress_bar(const ProgressState& state, int64_t width);  // at most `width` columns
std::string progress_line(const ProgressState& state);                // "train 500/2000 (25%), 3:20 left, loss 1.2"

}  // namespace quire
