// Requests to stop a run at the end of its step.
#pragma once

#include <csignal>
#include <string>

namespace quire {

// Every rank has its own request; the run stops when one of them has a reason.
class StopRequest {
 public:
  StopRequest() = default;
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  virtual ~StopRequest();
  virtual std::string reason() const = 0;  // empty: nobody asks
};

// Catches SIGTERM, SIGINT, SIGUSR1 and SIGHUP of this process while it lives; SIGHUP, which a closed terminal sends,
// stays ignored under nohup. Ranks that are threads may have one each, and all see the same signals. A second SIGINT
// ends the process as usual, until ignore_more().
class StopSignals : public StopRequest {
 public:
  StopSignals();
  ~StopSignals() override;

  // Returns an object that lives until the process ends, so that no late signal changes the exit code.
  static const StopSignals& of_process();
  // Ignores these signals from now on, while one of these objects lives: the end of the process is decided.
  static void ignore_more();

  bool requested() const { return signal_number() != 0; }
  int signal_number() const;            // the first one that came, 0 for none
  std::string reason() const override;  // "SIGTERM"
};

}  // namespace quire
