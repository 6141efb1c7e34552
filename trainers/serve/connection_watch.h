// Closes connections that take too long to send a request, and notices clients that leave while they wait.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trainers/serve/http_exchange.h"
#include "trainers/serve/serve_error.h"

namespace quire {

// Writes a whole response to a connection whose daemon has sent nothing yet.
void send_plainly(int descriptor, const ServeError& error);

class ConnectionWatch {
 public:
  ConnectionWatch(std::chrono::milliseconds timeout, ServerMetrics& metrics);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  void opened(const void* connection, int descriptor);
  void closing(const void* connection);
  void receives(const void* connection, std::shared_ptr<HttpExchange> exchange);  // a body
  void works(const void* connection, std::shared_ptr<HttpExchange> exchange);     // a request was received
  // The request was answered. lingers: the connection ends while the client may still be sending. Its bytes are dropped
  // for a while, since closing at once could destroy the answer on its way.
  void idles(const void* connection, bool lingers);

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { first, receiving, working, idle };
  struct Watched {
    int descriptor = -1;
    Phase phase = Phase::first;
    Clock::time_point since = Clock::now();
    std::shared_ptr<HttpExchange> exchange = {};
    bool lingers = false;
  };
  struct Lingering {
    int descriptor = -1;
    Clock::time_point until;
  };
  void watch();
  void close_slow();
  void notice_leavers();
  void drain_lingering(bool all);
  void set(const void* connection, Phase phase, std::shared_ptr<HttpExchange> exchange);

  const std::chrono::milliseconds timeout_;
  ServerMetrics& metrics_;
  std::mutex mutex_;  // of the two lists; descriptors in it are open
  std::unordered_map<const void*, Watched> watched_;
  std::vector<Lingering> lingering_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace quire
