// Who asks a run to stop at the end of its step.
#pragma once

#include <csignal>
#include <string>

namespace quire {

// Every rank has one of its own; the run stops when one of them is asked.
class StopRequest {
 public:
  StopRequest() = default;
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;
  virtual ~StopRequest();
  virtual std::string reason() const = 0;  // empty: nobody asks
};

// SIGTERM, SIGINT, SIGUSR1 and SIGHUP of this process, while it lives; SIGHUP, which a closed terminal sends, stays
// ignored under nohup. Ranks that are threads may have one each, and all see the same signals. A second SIGINT ends the
// process as usual, until ignore_more().
class StopSignals : public StopRequest {
 public:
  StopSignals();
  ~StopSignals() override;

  // One that lives until the process is gone, so that no signal on the way out changes the exit code.
  static const StopSignals& of_process();
  // How the process ends is decided: from now on these signals mean nothing, while one of these objects lives.
  static void ignore_more();

  bool requested() const { return signal_number() != 0; }
  int signal_number() const;            // the first one that came, 0 for none
  std::string reason() const override;  // "SIGTERM"
};

}  // namespace quire
