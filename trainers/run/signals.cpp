#include "trainers/run/signals.h"

#include <array>
#include <atomic>
#include <mutex>

#include "core/check.h"

namespace quire {

namespace {

// A signal handler can reach only globals.
std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Ranks that are threads share the handlers: the first one installs them, the last one restores the old ones.
constexpr std::array kSignals{SIGTERM, SIGINT, SIGUSR1, SIGHUP};
std::mutex mutex;
int living = 0;
std::array<struct sigaction, kSignals.size()> previous;

void on_signal(int number) {
  int none = 0;
  caught.compare_exchange_strong(none, number);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopRequest::~StopRequest() = default;

StopSignals::StopSignals() {
  const std::lock_guard lock(mutex);
  if (living++ > 0) return;
  caught = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // interrupted reads and writes continue
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    QUIRE_CHECK(sigaction(kSignals[i], &action, &previous[i]) == 0, "signals: sigaction failed");
    // Under nohup a closed terminal must not stop the run.
    if (kSignals[i] == SIGHUP && previous[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &previous[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(mutex);
  if (--living > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous[i], nullptr);
}

const StopSignals& StopSignals::of_process() {
  static const StopSignals* const signals = new StopSignals;
  return *signals;
}

void StopSignals::ignore_more() {
  const std::lock_guard lock(mutex);
  if (living == 0) return;
  for (const int number : kSignals) std::signal(number, SIG_IGN);
}

int StopSignals::signal_number() const {
  return caught;
}

std::string StopSignals::reason() const {
  switch (signal_number()) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGHUP:
      return "SIGHUP";
    default:
      return "";
  }
}

}  // namespace quire
