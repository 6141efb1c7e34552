#include "trainers/serve/connection_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "core/background_thread.h"
#include "core/log.h"

namespace quire {

namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::seconds kLinger{2};
constexpr size_t kMaxLingering = 256;

// Drops what the client sends. Returns true when it sends no more.
bool has_ended(int descriptor) {
  std::array<char, 1 << 16> dropped;
  constexpr int kReads = 16;  // at a time
  for (int reads = 0; reads < kReads; ++reads) {
    const ssize_t count = ::recv(descriptor, dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (count <= 0) return count == 0 || (errno != EAGAIN && errno != EINTR);
  }
  return false;
}

}  // namespace

void send_plainly(int descriptor, const ServeError& error) {
  const std::string body = error_json(error.status(), error.what());
  const std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{}{}\r\n{}",
      error.status(), MHD_get_reason_phrase_for(static_cast<unsigned>(error.status())), body.size(), error.header(),
      error.header().empty() ? "" : "\r\n", body);
  [[maybe_unused]] const ssize_t sent = ::send(descriptor, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

ConnectionWatch::ConnectionWatch(std::chrono::milliseconds timeout, ServerMetrics& metrics)
    : timeout_(timeout), metrics_(metrics), thread_(background_thread([this] { watch(); })) {}

ConnectionWatch::~ConnectionWatch() {
  ending_ = true;
  thread_.join();
  drain_lingering(true);
}

void ConnectionWatch::opened(const void* connection, int descriptor) {
  ++metrics_.connections;
  const std::lock_guard lock(mutex_);
  watched_[connection] = {.descriptor = descriptor};
}

void ConnectionWatch::closing(const void* connection) {
  --metrics_.connections;
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  const bool lingers = found->second.lingers || found->second.phase == Phase::first;
  if (lingers && lingering_.size() < kMaxLingering) {
    const int copy = ::dup(found->second.descriptor);
    if (copy >= 0) {
      ::shutdown(copy, SHUT_WR);
      lingering_.push_back({copy, Clock::now() + kLinger});
    }
  }
  watched_.erase(found);
}

void ConnectionWatch::set(const void* connection, Phase phase, std::shared_ptr<HttpExchange> exchange) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  found->second = {.descriptor = found->second.descriptor, .phase = phase, .exchange = std::move(exchange)};
}

void ConnectionWatch::receives(const void* connection, std::shared_ptr<HttpExchange> exchange) {
  set(connection, Phase::receiving, std::move(exchange));
}

void ConnectionWatch::works(const void* connection, std::shared_ptr<HttpExchange> exchange) {
  set(connection, Phase::working, std::move(exchange));
}

void ConnectionWatch::idles(const void* connection, bool lingers) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  found->second = {.descriptor = found->second.descriptor, .phase = Phase::idle, .lingers = lingers};
}

void ConnectionWatch::watch() {
  while (!ending_) {
    std::this_thread::sleep_for(kTick);
    close_slow();
    notice_leavers();
    drain_lingering(false);
  }
}

// The daemon sees the end of the connection and closes it.
void ConnectionWatch::close_slow() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (auto& [connection, watched] : watched_) {
    if (watched.phase == Phase::working || now - watched.since < timeout_) continue;
    if (watched.phase != Phase::idle) {
      send_plainly(watched.descriptor, {408, "the request took too long to arrive; send it faster"});
      if (watched.exchange) {
        watched.exchange->set_refused(408);
      } else {
        metrics_.count(408);
        log_info("a connection sent no whole request in time: 408");
      }
    }
    ::shutdown(watched.descriptor, SHUT_RDWR);
    watched.since = now + std::chrono::hours(1);  // once
  }
}

void ConnectionWatch::notice_leavers() {
  std::vector<pollfd> polled;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, watched] : watched_) {
      if (watched.phase != Phase::working) continue;
      polled.push_back({watched.descriptor, POLLRDHUP, 0});
      exchanges.push_back(watched.exchange);
    }
    ::poll(polled.data(), polled.size(), 0);
  }
  for (size_t i = 0; i < polled.size(); ++i) {
    if ((polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) exchanges[i]->client_left();
  }
}

void ConnectionWatch::drain_lingering(bool all) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  const auto done = [&](const Lingering& one) {
    if (!all && now < one.until && !has_ended(one.descriptor)) return false;
    ::close(one.descriptor);
    return true;
  };
  lingering_.erase(std::remove_if(lingering_.begin(), lingering_.end(), done), lingering_.end());
}

}  // namespace quire
