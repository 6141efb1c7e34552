#include "trainers/run/signals.h"

#include <atomic>

#include "core/check.h"

namespace quire {

namespace {

// A signal handler can reach nothing but globals.
std::atomic<int> caught{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  caught.compare_exchange_strong(none, number);
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  caught = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes in progress go on
  sigemptyset(&action.sa_mask);
  QUIRE_CHECK(sigaction(SIGTERM, &action, &previous_term_) == 0 && sigaction(SIGINT, &action, &previous_int_) == 0 &&
                  sigaction(SIGUSR1, &action, &previous_usr1_) == 0,
              "signals: sigaction failed");
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &previous_term_, nullptr);
  sigaction(SIGINT, &previous_int_, nullptr);
  sigaction(SIGUSR1, &previous_usr1_, nullptr);
}

int StopSignals::signal_number() const {
  return caught;
}

const char* StopSignals::name() const {
  switch (signal_number()) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "";
  }
}

}  // namespace quire
