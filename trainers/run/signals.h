// SIGTERM, SIGINT and SIGUSR1 ask a run to stop at the end of its step.
#pragma once

#include <csignal>

namespace quire {

// Catches the signals while it lives; one at a time. A second SIGINT ends the process as usual.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  bool requested() const { return signal_number() != 0; }
  int signal_number() const;  // the first one that came, 0 for none
  const char* name() const;   // "SIGTERM"; "" for none

 private:
  struct sigaction previous_term_ = {};
  struct sigaction previous_int_ = {};
  struct sigaction previous_usr1_ = {};
};

}  // namespace quire
