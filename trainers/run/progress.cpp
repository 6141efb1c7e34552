#include "trainers/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "core/check.h"
#include "core/log.h"

namespace quire {

namespace {

constexpr double kBarSeconds = 0.1;
constexpr double kLineSeconds = 15.0;

bool stderr_is_terminal() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

int64_t terminal_width() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string duration(double seconds) {
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

int64_t percent(const ProgressState& state) {
  return state.total > 0 ? std::clamp<int64_t>(state.done * 100 / state.total, 0, 100) : 100;
}

// Returns "3:20 left", or the duration at the end; empty before the first step.
std::string time_text(const ProgressState& state) {
  if (state.done >= state.total) return duration(state.seconds);
  if (state.done <= state.first) return "";
  const double per_unit = state.seconds / static_cast<double>(state.done - state.first);
  return duration(per_unit * static_cast<double>(state.total - state.done)) + " left";
}

}  // namespace

std::string progress_line(const ProgressState& state) {
  std::string line = fmt::format("{} {}/{} ({}%)", state.label, state.done, state.total, percent(state));
  for (const std::string& part : {time_text(state), state.text}) {
    if (!part.empty()) line.append(", ").append(part);
  }
  return line;
}

std::string progress_bar(const ProgressState& state, int64_t width) {
  std::string tail = fmt::format(" {}/{}", state.done, state.total);
  for (const std::string& part : {time_text(state), state.text}) {
    if (!part.empty()) tail.append("  ").append(part);
  }
  std::string line = state.label + " ";
  const int64_t room = width - static_cast<int64_t>(line.size() + tail.size()) - 2;
  constexpr int64_t kNarrowest = 5;
  if (room >= kNarrowest) {
    const auto bar = static_cast<size_t>(std::min<int64_t>(room, 40));
    const size_t filled = bar * static_cast<size_t>(percent(state)) / 100;
    line += fmt::format("[{:#<{}}{:.<{}}]", "", filled, "", bar - filled);
  } else {
    line += fmt::format("{}%", percent(state));
  }
  line += tail;
  if (static_cast<int64_t>(line.size()) > width) line.resize(static_cast<size_t>(std::max<int64_t>(width, 0)));
  return line;
}

Progress::Progress(std::string label, int64_t total, int64_t done)
    : label_(std::move(label)),
      total_(total),
      first_(done),
      done_(done),
      on_terminal_(stderr_is_terminal()),
      start_(Clock::now()),
      last_bar_(start_),
      last_line_(start_) {}

Progress::~Progress() {
  if (!finished_) show_status_line("");
}

double Progress::seconds_since(Clock::time_point time) const {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

void Progress::update(int64_t done, const std::string& text) {
  done_ = done;
  text_ = text;
  const ProgressState state{label_, first_, done_, total_, seconds_since(start_), text_};
  if (on_terminal_ && seconds_since(last_bar_) >= kBarSeconds) {
    last_bar_ = Clock::now();
    show_status_line(progress_bar(state, terminal_width() - 1));  // a full line would wrap
  }
  if (seconds_since(last_line_) >= kLineSeconds) {
    last_line_ = Clock::now();
    if (on_terminal_) {
      log_file_only(progress_line(state));
    } else {
      log_info(progress_line(state));
    }
  }
}

void Progress::leave_out(double seconds) {
  start_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  show_status_line("");
  log_info(progress_line({label_, first_, done_, total_, seconds_since(start_), text_}));
}

}  // namespace quire
