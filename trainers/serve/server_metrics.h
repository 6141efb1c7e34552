// Counts of the HTTP side of a server, for /metrics.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace quire {

struct ServerMetrics {
  std::atomic<int64_t> connections{0};                // open now
  std::atomic<int64_t> requests_open{0};              // that were received and have no full answer yet
  std::atomic<int64_t> reply_bytes{0};                // of large answers, in memory now
  std::atomic<int64_t> body_bytes{0};                 // of requests, in memory now
  std::array<std::atomic<int64_t>, 600> responses{};  // by status
  void count(int status) { ++responses[static_cast<size_t>(status < 600 ? status : 599)]; }
};

}  // namespace quire
